"""Runs nodes of a task from this folder, as the archive does: ``python3 -I -S …/batchhvd/node FOLDER [INDEX ...]``."""

import sys
from pathlib import Path
from types import ModuleType

if not __package__:  # the folder was started: give its modules their full names without importing the client
    package = ModuleType("batchhvd")
    package.__path__ = [str(Path(__file__).absolute().parents[1])]
    sys.modules["batchhvd"] = package

from batchhvd.node.start import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
