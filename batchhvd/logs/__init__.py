"""Following and understanding what jobs write."""
