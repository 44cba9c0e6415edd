"""``python -m batchhvd``: the command line."""

from batchhvd.cli.main import main

main()
