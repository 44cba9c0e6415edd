"""What all commands share: the context, verbs, reading of spec files, printing, and how a failure is told."""
