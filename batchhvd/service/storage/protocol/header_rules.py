"""Rules for headers, as tables: for the check of requests and for the pages that list them.

A header that is not in its table is refused by name: one that an operation does not know may change what it means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from attrs import field, frozen

from batchhvd.service.storage.protocol.refusal import refusal

METADATA = "x-ms-meta-"
CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since")
_ANY = ".*"


@frozen
class Rule:
    """What is done with a header.

    Attributes:
        done: in a word or two, as the documentation shows it.
        values: the only values that are taken, as a pattern; "" for all that the operation can read.
        unsupported: values that Azure knows and this service does not (501), as a pattern.
    """

    done: str
    values: str = field(default="", kw_only=True)
    unsupported: str = field(default="", kw_only=True)

    def check(self, operation: str, name: str, value: str) -> None:
        """Refuses a value that is not taken."""
        if self.unsupported and re.fullmatch(self.unsupported, value, re.IGNORECASE):
            raise refusal("NotImplemented", f"{operation} does not support {name}: {self.shown(value)}.")
        if self.values and not re.fullmatch(self.values, value, re.IGNORECASE):
            raise refusal("InvalidHeaderValue", f"{name} must be {self.words}, not {value[:60]!r}.")

    def shown(self, value: str) -> str:
        """Returns a value as messages show it, or why none is supported."""
        return self.done if self.unsupported == _ANY else value[:60]

    @property
    def words(self) -> str:
        """The values as readers like them."""
        return self.values.replace("|", " or ")

    @property
    def told(self) -> str:
        """All of it, for the documentation."""
        if self.unsupported == _ANY:
            return f"501: {self.done}"
        parts = [self.done]
        if self.values:
            parts.append(f"`{'`, `'.join(self.values.split('|'))}`, else 400")
        if self.unsupported:
            parts.append(f"`{'`, `'.join(self.unsupported.split('|'))}` 501")
        return "; ".join(parts)


def unsupported(why: str) -> Rule:
    """Returns the rule of a header that Azure knows and this service does not, whatever its value."""
    return Rule(why, unsupported=_ANY)


@frozen
class Table:
    """What is done with each header of each operation of a service.

    Attributes:
        every: rules by header, for all operations.
        operations: rules by operation and header.
    """

    every: Mapping[str, Rule]
    operations: Mapping[str, Mapping[str, Rule]]

    def check(self, operation: str, headers: Mapping[str, str]) -> None:
        """Refuses a header that the operation does not know, or whose value it does not take."""
        known = self.operations[operation]
        for name, value in headers.items():
            if name.startswith("x-ms-") or name in CONDITIONS:
                key = METADATA if name.startswith(METADATA) else name
                rule = known.get(key) or self.every.get(key)
                if rule is None:
                    raise _unknown(operation, name)
                rule.check(operation, name, value)

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yields header, operations, and what is done with it, as the documentation lists them."""
        for name, rule in self.every.items():
            yield name, "all", rule.told
        found: dict[tuple[str, str], list[str]] = {}
        for operation, rules in self.operations.items():
            for name, rule in rules.items():
                found.setdefault((name, rule.told), []).append(operation)
        for (name, told), operations in sorted(found.items()):
            yield f"{name}…" if name == METADATA else name, ", ".join(operations), told


def _unknown(operation: str, name: str) -> Exception:
    if name in CONDITIONS:
        return refusal("ConditionHeadersNotSupported", f"{operation} takes no {name}.")
    return refusal("UnsupportedHeader", f"{operation} takes no {name}.")
