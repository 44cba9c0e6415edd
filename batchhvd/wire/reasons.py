"""Why something is as it is, as the service puts it into words."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from batchhvd.wire.facts.causes import Code
from batchhvd.wire.facts.output import without_notices

_LAST = "; last line: "


@frozen
class Reason:
    """Why something is as it is, in the service's words.

    Attributes:
        code: a short name for programs, such as ``"NodeLost"``.
        message: a sentence for people.
        details: further facts by name.
    """

    code: str
    message: str
    details: Mapping[str, str] = field(factory=dict)

    @property
    def signal(self) -> str:
        """The name of the signal that ended a rank, such as ``"SIGKILL"``, or ""."""
        number = self.details.get("Signal", "")
        try:
            return signal.Signals(int(number)).name if number else ""
        except ValueError:
            return f"signal {number}"

    def __str__(self) -> str:
        """Returns the sentence, with a signal by its name, and with a last line only if it may tell something."""
        text, known, _ = (self.message or self.code).partition(_LAST)
        if self.code != Code.RANK_FAILED or not (known or self.signal):
            return self.message or self.code
        if self.signal and self.details.get("Rank"):
            where = f" on node {self.details['Node']}" if self.details.get("Node") else ""
            text = f"Rank {self.details['Rank']} was killed by {self.signal}{where}"
        lines = [line for line in without_notices(self.details.get("Tail", "").splitlines()) if line.strip()]
        return text.rstrip(".") + (f"{_LAST}{lines[-1]}." if known and lines else ".")


def reasons(errors: Any) -> tuple[Reason, ...]:
    """Returns the wire's list of errors as values."""
    return tuple(
        Reason(
            str(error.get("code") or ""),
            str(error.get("message") or ""),
            {str(pair.get("name")): str(pair.get("value")) for pair in error.get("details") or ()},
        )
        for error in errors
    )
