"""Reads a Keras script for Horovod, without running it, and says what is missing or wrong on several ranks."""

from __future__ import annotations

from batchhvd.errors import SpecError
from batchhvd.trainer.check.finding import Finding
from batchhvd.trainer.check.parsed_script import Script
from batchhvd.trainer.check.rule import findings

__all__ = ["Finding", "check"]


def check(text: str, name: str = "<script>") -> list[Finding]:
    """Returns the findings in a script, in the order of lines.

    Args:
        text: the script.
        name: its name in messages.

    Raises:
        SpecError: It is not Python; the error has the line and column.
    """
    try:
        script = Script(text, name)
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", None) or 0, getattr(error, "offset", None) or 0
        remedy = "fix its syntax; scripts of Python 2 cannot be read"
        raise SpecError(f"not Python: {error}", remedy=remedy, file=name, line=line, column=column) from error
    return findings(script)
