"""Runs the tutorial and draws what the terminal showed: ``python docs/recording.py`` writes docs/images/tutorial.svg.

Beside it lies the same as text, tutorial.txt, which README quotes.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parent / "images"
WIDTH = 100


def run(root: str) -> str:
    """Returns what ``batchhvd tutorial`` printed, with its colours."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    command = [sys.executable, "-m", "batchhvd", "--no-progress", "tutorial", "--root", root]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the tutorial ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Writes the picture and the text."""
    with tempfile.TemporaryDirectory() as root:
        shown = Text.from_ansi(run(root).replace(root, "run/tutorial"))
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(shown)
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "tutorial.txt").write_text(shown.plain + "\n", encoding="utf-8")
    (IMAGES / "tutorial.svg").write_text(console.export_svg(title="make tutorial"), encoding="utf-8")


if __name__ == "__main__":
    main()
