"""What happens on one node of a task. Standard library only."""
