"""``python -m batchhvd``: the command line."""

from batchhvd.cli import main

main()
