"""What a run was made of: code, Python, packages, machine."""
