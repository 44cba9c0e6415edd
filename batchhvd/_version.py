"""The version, in one place; read by setup.cfg without importing the package."""

__version__ = "0.1.0.dev0"
