"""The operations of Azure Files, by noun."""
