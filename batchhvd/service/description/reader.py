"""Reads a value by a schema of the published description (Swagger 2.0): required fields, types, enums, defaults.

Clients do not check what they send, so wrong fields are found here. All problems are collected, each with the JSON
pointer (RFC 6901) of its field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from attrs import Factory, frozen

from batchhvd.errors import BadRequestError
from batchhvd.wire.facts.pointers import child
from batchhvd.wire.facts.times import read_duration, write_duration

Schema = Mapping[str, Any]
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


_WORDS = {r"^[-\w_]+$": "may only have letters (a to z), digits, hyphens and underscores"}
"""What a pattern of the description asks for, in words."""


@frozen
class Problem:
    """One field that is wrong: its JSON pointer and what is wrong with it."""

    pointer: str
    text: str


@frozen
class Reader:
    """Reads values by schemas.

    Attributes:
        resolve: follows a ``$ref``.
        problems: what is wrong, in the order of the fields.
        unknown: pointers of the fields that the schema does not have.
    """

    resolve: Callable[[Schema], Schema]
    problems: list[Problem] = Factory(list)
    unknown: list[str] = Factory(list)

    def read(self, schema: Schema, value: object, pointer: str = "") -> Any:
        """Returns the value with unknown fields and nulls dropped and defaults filled in."""
        schema = self.resolve(schema)
        kind = schema.get("type") or ("object" if "properties" in schema else "")
        read = _READERS.get(kind)
        return read(self, schema, value, pointer) if read else value

    def complain(self, pointer: str, text: str) -> object:
        """Notes a problem, and returns None, which stands for the wrong value."""
        self.problems.append(Problem(pointer, text))
        return None

    def _object(self, schema: Schema, value: object, pointer: str) -> object:
        if not isinstance(value, dict):
            return self.complain(pointer, f"must be an object, not {_kind(value)}")
        properties = schema.get("properties", {})
        result = {}
        for name, part in value.items():
            at = child(pointer, name)
            if name in properties:
                if part is not None:
                    result[name] = self.read(properties[name], part, at)
            elif "additionalProperties" in schema:
                result[name] = self.read(schema["additionalProperties"], part, at)
            elif not (name == "$schema" and not pointer):
                self.unknown.append(at)
        self._complete(schema, result, pointer)
        return result

    def _complete(self, schema: Schema, result: dict[str, object], pointer: str) -> None:
        for name in needed(schema, self.resolve):
            if name not in result:
                self.complain(child(pointer, name), "is missing")
        for name, part in schema.get("properties", {}).items():
            default = default_of(part) if "default" in part and name not in result else None
            if default is not None:
                result[name] = default

    def _array(self, schema: Schema, value: object, pointer: str) -> object:
        if not isinstance(value, list):
            return self.complain(pointer, f"must be a list, not {_kind(value)}")
        return [self.read(schema["items"], part, f"{pointer}/{index}") for index, part in enumerate(value)]

    def _integer(self, schema: Schema, value: object, pointer: str) -> object:
        if not isinstance(value, int) or isinstance(value, bool):
            return self.complain(pointer, f"must be a whole number, not {_kind(value)}")
        low, high = _RANGES[schema.get("format", "int64")]
        low, high = max(low, schema.get("minimum", low)), min(high, schema.get("maximum", high))
        if not low <= value <= high:
            self.complain(pointer, f"must be from {low} to {high}, not {value}")
        return value

    def _string(self, schema: Schema, value: object, pointer: str) -> object:
        if not isinstance(value, str):
            return self.complain(pointer, f"must be text, not {_kind(value)}")
        if "enum" in schema:
            return self._choice(schema["enum"], value, pointer)
        if schema.get("format") == "duration":
            return self._duration(value, pointer)
        if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", len(value)):
            self.complain(pointer, f"must have {schema.get('minLength', 0)} to {schema['maxLength']} characters")
        # ASCII: the description says "alphanumeric", and only ASCII has one way to write a letter in lower case.
        if "pattern" in schema and not re.fullmatch(schema["pattern"].strip("^$"), value, re.ASCII):
            self.complain(pointer, _WORDS.get(schema["pattern"], f"must match {schema['pattern']}"))
        return value

    def _choice(self, choices: list[str], value: str, pointer: str) -> object:
        for choice in choices:
            if choice.lower() == value.lower():
                return choice
        return self.complain(pointer, f"must be one of {', '.join(choices)}")

    def _duration(self, value: str, pointer: str) -> object:
        length = read_duration(value)
        if length is None or length <= timedelta(0):
            return self.complain(pointer, "must be a duration above zero such as PT2H or P7D")
        return write_duration(length)


_READERS: dict[str, Callable[[Reader, Schema, object, str], object]] = {
    "object": Reader._object,
    "array": Reader._array,
    "integer": Reader._integer,
    "string": Reader._string,
}


def needed(schema: Schema, resolve: Callable[[Schema], Schema]) -> list[str]:
    """Returns the names of an object's required fields.

    The description does not mark ``properties`` as required even if fields inside it are; here it is then.
    """
    names = list(schema.get("required", ()))
    inner = schema.get("properties", {}).get("properties")
    if inner is not None and "properties" not in names and resolve(inner).get("required"):
        names.append("properties")
    return names


def default_of(schema: Schema) -> object:
    """Returns a field's default, or None if it has none; durations in ISO 8601, which is what clients read."""
    default = schema.get("default")
    if default is not None and schema.get("format") == "duration":
        length = read_duration(default)
        return None if length is None else write_duration(length)
    return default


def refuse(problems: list[Problem]) -> None:
    """Raises for the first problem, with all of them as details; does nothing if there are none.

    Raises:
        BadRequestError: 400, the target is the JSON pointer of the first wrong field.
    """
    if not problems:
        return
    details = [{"code": "InvalidField", "message": f"{p.pointer} {p.text}.", "target": p.pointer} for p in problems]
    more = f" ({len(problems) - 1} more in the details)" if len(problems) > 1 else ""
    first = problems[0]
    raise BadRequestError(
        f"{first.pointer or 'The body'} {first.text}{more}.",
        code="InvalidField",
        target=first.pointer,
        details=details,
    )


def _kind(value: object) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "text",
        bool: "true or false",
        float: "a fraction",
        int: "a number",
    }
    return names.get(type(value), "null")
