"""What is measured with ranks on this machine: how fast they train, and that they train right."""
