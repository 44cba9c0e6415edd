"""The resources that users hold."""
