"""A copy-on-write view of the machine for preparations, whose changes are kept in a layer (Linux only)."""
