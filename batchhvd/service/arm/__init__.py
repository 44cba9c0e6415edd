"""Resource Manager: groups, storage accounts, long-running operations."""
