"""What only the protocol of Azure Files has: its headers, and the permissions of Windows."""
