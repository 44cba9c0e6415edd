"""A script's file: read in the encoding that it names, and written back in it, with its line ends."""

from __future__ import annotations

import difflib
import io
import os
import tokenize
from pathlib import Path

from attrs import evolve, frozen


@frozen
class SourceFile:
    """The text of a script and how it lies in its file.

    Attributes:
        path: the file.
        text: its text, with the line ends that it has.
        encoding: as its first lines name it; UTF-8 otherwise.
    """

    path: Path
    text: str
    encoding: str

    @staticmethod
    def read(path: Path) -> SourceFile:
        """Reads a script.

        Raises:
            OSError: The file cannot be read.
            SyntaxError: The encoding that it names does not exist.
            UnicodeDecodeError: It is not in this encoding.
        """
        content = path.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return SourceFile(path, content.decode(encoding), encoding)

    def with_text(self, text: str) -> SourceFile:
        """Returns it with another text."""
        return evolve(self, text=text)

    def write(self) -> None:
        """Replaces the file in one step, so that a stop in between leaves it whole; links and modes stay."""
        path = self.path.resolve()
        beside = path.with_name(f".{path.name}-{os.getpid()}")
        try:
            beside.write_bytes(self.text.encode(self.encoding))
            beside.chmod(path.stat().st_mode)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)

    def difference(self, other: SourceFile) -> str:
        """Returns the difference to another text of the same file, as ``diff -u`` shows it; "" if there is none."""
        lines = [text.replace("\r\n", "\n").splitlines(keepends=True) for text in (self.text, other.text)]
        shown = difflib.unified_diff(lines[0], lines[1], str(self.path), f"{self.path} (fixed)")
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in shown)
