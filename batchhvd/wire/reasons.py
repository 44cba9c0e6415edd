"""Why something is as it is, as the service puts it into words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


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

    def __str__(self) -> str:
        return self.message or self.code


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
