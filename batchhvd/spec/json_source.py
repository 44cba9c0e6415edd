"""Reads JSON files and remembers the position of every value, so that an error can point at it.

The standard reader does not keep positions; whoever edits a job file of eighty lines needs them.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from attrs import field, frozen

from batchhvd.errors import SpecError
from batchhvd.wire.facts.documents import Body, Document
from batchhvd.wire.facts.pointers import child

_SPACE = re.compile(r"[ \t\r\n]*")
_HALVES = re.compile(r"[\ud800-\udfff]")
_LARGEST = 2**63
_DEPTH = 60  # the published files nest eight deep; beyond this Python's own stack would end first


@frozen
class JsonSource:
    """A JSON document and the position of each of its values.

    Attributes:
        value: the document as Python objects.
        file: the file's name as the caller gave it, or "" for a document that came from elsewhere.
        text: the file's text, or "".
        places: index into the text of each value, by JSON pointer.
        keys: index into the text of each object's key, by the JSON pointer of its value.
    """

    value: Any
    file: str = ""
    text: str = field(default="", repr=False)
    places: Mapping[str, int] = field(factory=dict, repr=False)
    keys: Mapping[str, int] = field(factory=dict, repr=False)

    def fault(self, pointer: str, problem: str, remedy: str = "", *, key: bool = False) -> SpecError:
        """Returns the error for a value (or for its key), with line and column if it was read from a file.

        Args:
            pointer: JSON pointer of the wrong value; its nearest ancestor that exists gives the position.
            problem: what is wrong.
            remedy: what would be right.
            key: the key is what is wrong, not the value.
        """
        index = self.keys.get(pointer) if key else None
        line, column = _position(self.text, self._index(pointer) if index is None else index)
        place = {"file": self.file, "line": line, "column": column} if self.file else {}
        return SpecError(problem, pointer=pointer, remedy=remedy, **place)  # type: ignore[arg-type]  # one dict, two types

    def line(self, pointer: str) -> int:
        """Returns the line (from 1) of a value, or 0 for a document without a file."""
        return _position(self.text, self._index(pointer))[0] if self.file else 0

    def _index(self, pointer: str) -> int:
        while pointer and pointer not in self.places:
            pointer = pointer.rpartition("/")[0]
        return self.places.get(pointer, 0)


def of(document: object) -> JsonSource:
    """Returns a document that did not come from a file."""
    return JsonSource(dict(document) if isinstance(document, Mapping) else document)


def check_values(source: JsonSource) -> None:
    """Checks that every value can be sent: JSON that nests as deep as a file may, and text that UTF-8 can carry.

    Raises:
        SpecError: one cannot, with its place.
    """
    waiting: list[tuple[str, object, int]] = [("", source.value, 0)]
    while waiting:
        pointer, value, depth = waiting.pop()
        problem = _unsendable(value)
        if depth > _DEPTH:
            problem = f"more than {_DEPTH} levels deep", "a job file needs about eight"
        if problem:
            raise source.fault(pointer, *problem)
        if isinstance(value, Mapping):
            wrong = [name for name in value if not isinstance(name, str)]
            if wrong:
                raise source.fault(pointer, f"{wrong[0]!r} is not the name of a field", "write names as text")
            waiting += [(pointer, name, depth) for name in value]
            waiting += [(child(pointer, name), item, depth + 1) for name, item in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(child(pointer, index), item, depth + 1) for index, item in enumerate(value)]


def _unsendable(value: object) -> tuple[str, str] | None:
    if isinstance(value, str):
        wrong = _HALVES.search(value)
        return (f"{ascii(wrong[0])} is half of a character", "write the whole character") if wrong else None
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a number in JSON", "write a number or null"
    if isinstance(value, int) and abs(value) >= _LARGEST:
        return "this number has more than 64 bits", "write a smaller one"
    known = value is None or isinstance(value, (int, float, Mapping, list, tuple))
    return None if known else (f"{type(value).__name__} is not a kind of value that JSON has", "write text or a number")


def read(path: str | os.PathLike[str]) -> JsonSource:
    """Reads a JSON file in UTF-8, with or without a byte order mark.

    Raises:
        SpecError: the file is missing, cannot be read, or is not JSON; with line and column.
    """
    name = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        reason = getattr(error, "strerror", None) or error
        raise SpecError(f"cannot read {name}: {reason}", remedy="give the path of a JSON file") from error
    try:
        return parse(data.decode("utf-8-sig"), file=name)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise SpecError("is not UTF-8", remedy="save it as UTF-8", file=name, line=line, column=column) from error


def parse(text: str, *, file: str = "") -> JsonSource:
    """Returns the document in a text.

    Args:
        text: JSON (RFC 8259); two equal keys in one object are an error here.
        file: the name to give in errors.

    Raises:
        SpecError: the text is not JSON, with line, column and what would be right.
    """
    reader = _Reader(text, file)
    value = reader.document()
    return JsonSource(value, file, text, reader.places, reader.keys)


def _position(text: str, index: int) -> tuple[int, int]:
    """Line and column, both from 1."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


class _Reader:
    """A reader by recursive descent; strings, numbers and literals are the standard decoder's."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file, self.at = text, file, 0
        self.places: dict[str, int] = {}
        self.keys: dict[str, int] = {}
        self.scalars = json.JSONDecoder(parse_constant=_no_constant)

    def document(self) -> object:
        if not self.peek():
            self.fail("the file is empty", 'write {"properties": {…}}')
        value = self.value("", 0)
        if self.peek():
            self.fail("the document has ended, and more follows", "keep one object in the file")
        return value

    def value(self, pointer: str, depth: int) -> object:
        first = self.peek()
        self.places[pointer] = self.at
        if depth > _DEPTH:
            self.fail(f"more than {_DEPTH} levels deep", "a job file needs about eight")
        if first == "{":
            return self.members(pointer, depth)
        if first == "[":
            return self.items(pointer, depth)
        return self.scalar()

    def members(self, pointer: str, depth: int) -> Body:
        found: Body = {}
        while self.more("}", bool(found)):
            name = self.key(pointer, found)
            found[name] = self.value(child(pointer, name), depth + 1)
        return found

    def items(self, pointer: str, depth: int) -> list[object]:
        found: list[object] = []
        while self.more("]", bool(found)):
            found.append(self.value(child(pointer, len(found)), depth + 1))
        return found

    def more(self, closing: str, after_one: bool) -> bool:
        """Steps over ``{``, ``[`` or a comma and says whether another member follows."""
        if not after_one:
            self.at += 1
        if self.peek() == closing:
            self.at += 1
            return False
        if after_one:
            self.comma(closing)
        return True

    def comma(self, closing: str) -> None:
        if self.peek() != ",":
            self.unexpected(f"a comma or {closing} is missing here", "put it after the value before")
        comma = self.at
        self.at += 1
        if self.peek() == closing:
            self.at = comma
            self.fail(f"a comma stands before the closing {closing}", "remove the comma")

    def key(self, pointer: str, found: Document) -> str:
        if self.peek() != '"':
            self.unexpected("a field's name is missing here", 'write it in double quotes, as "nodeCount"')
        at = self.at
        name = str(self.scalar())
        if name in found:
            line = _position(self.text, self.keys[child(pointer, name)])[0]
            self.at = at
            self.fail(f'"{name}" is given twice, first on line {line}', "keep one of them")
        self.keys[child(pointer, name)] = at
        if self.peek() != ":":
            self.unexpected(f'a colon is missing after "{name}"', f'write "{name}": value')
        self.at += 1
        return name

    def scalar(self) -> object:
        try:
            value, self.at = self.scalars.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            self.at = error.pos
            self.unexpected(error.msg[:1].lower() + error.msg[1:], "")
        except ValueError as error:
            self.fail(f"{error} is not a number in JSON", "write a number or null")
        return value

    def peek(self) -> str:
        """Skips blanks and returns the next character, "" at the end."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def unexpected(self, problem: str, remedy: str) -> NoReturn:
        """Says the usual slips by name, anything else as given."""
        if not self.text[self.at :].strip():
            self.fail("the file ends in the middle", "a closing bracket or quote is missing")
        if self.text.startswith(("//", "/*", "#"), self.at):
            self.fail("a comment stands here, and JSON has none", "remove it")
        if self.text.startswith("'", self.at):
            self.fail("a single quote stands here", "JSON strings are in double quotes")
        if self.text.startswith(("True", "False", "None"), self.at):
            self.fail("this is Python, not JSON", "write true, false or null")
        self.fail(problem, remedy)

    def fail(self, problem: str, remedy: str) -> NoReturn:
        line, column = _position(self.text, self.at)
        raise SpecError(problem, remedy=remedy, file=self.file or "document", line=line, column=column)
