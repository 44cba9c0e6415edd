"""``python -m batchhvd.trainer [train | bench | parity | scale | check] …``: trains unless told otherwise."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "train": "batchhvd.trainer.train",
    "bench": "batchhvd.trainer.measure.bench",
    "parity": "batchhvd.trainer.measure.certificate",
    "scale": "batchhvd.trainer.scaling.__main__",
    "check": "batchhvd.trainer.check.__main__",
}


def main(argv: Sequence[str]) -> int:
    """Runs one of the trainer's commands and returns its exit code."""
    name, rest = (argv[0], argv[1:]) if argv and argv[0] in COMMANDS else ("train", argv)
    command = importlib.import_module(COMMANDS[name])
    return int(command.main(rest))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
