"""Where a preparation runs: a copy-on-write view of the machine, whose changes are kept in a layer (Linux only)."""
