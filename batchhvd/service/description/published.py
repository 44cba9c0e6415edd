"""The published description of Batch AI 2018-05-01, read at startup: routes, fields, types, enums, defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from attrs import frozen

from batchhvd.errors import BadRequestError
from batchhvd.service.description.reader import Reader, Schema, refuse

VERSION = "2018-05-01"


@frozen
class Operation:
    """One operation of the description.

    Attributes:
        id: such as ``"Jobs_Create"``.
        method: in upper case.
        template: the path with its parameters in braces.
        parameters: its parameters, references followed.
        pages: whether its answer comes in pages.
    """

    id: str
    method: str
    template: str
    parameters: tuple[Schema, ...]
    pages: bool = False

    @property
    def body(self) -> Schema | None:
        """The body's schema, or None if the operation takes no body."""
        return next((parameter["schema"] for parameter in self.parameters if parameter["in"] == "body"), None)


class Description:
    """The description, and the checks that follow from it."""

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._resolved: dict[int, tuple[Schema, Schema]] = {}  # by identity: the schemas live as long as this
        self.operations: tuple[Operation, ...] = tuple(self._read())
        # Names are checked with every request, so their patterns are compiled once.
        self._shapes = {operation.id: tuple(_shapes(operation)) for operation in self.operations}

    def operation(self, id: str) -> Operation:
        """Returns the operation of an id."""
        return next(operation for operation in self.operations if operation.id == id)

    @classmethod
    def published(cls) -> Description:
        """Returns the description that comes with the package."""
        text = files("batchhvd.service.description").joinpath(f"batchai-{VERSION}.json").read_text(encoding="utf-8")
        return cls(json.loads(text))

    def resolve(self, schema: Schema) -> Schema:
        """Follows a ``$ref`` (one step leads to the definition) and keeps what is said beside it."""
        if "$ref" not in schema:
            return schema
        known = self._resolved.get(id(schema))
        if known is None or known[0] is not schema:
            known = self._resolved[id(schema)] = schema, self._followed(schema)
        return known[1]

    def _followed(self, schema: Schema) -> Schema:
        target: Any = self._document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}

    def check_names(self, operation: Operation, names: Mapping[str, str]) -> None:
        """Checks the path's parameters against their patterns.

        Raises:
            BadRequestError: 400, naming the parameter.
        """
        if all(shape.fullmatch(names[name]) for name, shape in self._shapes[operation.id]):
            return
        reader = Reader(self.resolve)
        for parameter in operation.parameters:
            if parameter["in"] == "path":
                reader.read(parameter, names[parameter["name"]], parameter["name"])
        refuse(reader.problems)

    def read_query(self, operation: Operation, query: Mapping[str, str]) -> dict[str, str]:
        """Returns the query with the defaults filled in.

        Raises:
            BadRequestError: 400, naming the parameter that is missing or wrong.
        """
        reader, result = Reader(self.resolve), dict(query)
        for parameter in operation.parameters:
            if parameter["in"] == "query":
                self._read_parameter(reader, parameter, result)
        refuse(reader.problems)
        return result

    def read_body(self, operation: Operation, body: object) -> tuple[Any, list[str]]:
        """Returns the body read by the description, and the pointers of the fields that it does not know.

        Raises:
            BadRequestError: 400, with the JSON pointer of the first wrong field.
        """
        if operation.body is None:
            return None, []
        if body is None:
            raise BadRequestError("The body is missing.", code="InvalidRequestContent")
        reader = Reader(self.resolve)
        value = reader.read(operation.body, body)
        refuse(reader.problems)
        return value, reader.unknown

    def _read_parameter(self, reader: Reader, parameter: Schema, query: dict[str, str]) -> None:
        name = parameter["name"]
        if name not in query:
            if parameter.get("required"):
                reader.complain(name, "is missing from the query")
            elif "default" in parameter:
                query[name] = str(parameter["default"])
        elif parameter["type"] == "integer":
            reader.read(parameter, _number(query[name]), name)
        else:
            reader.read(parameter, query[name], name)

    def _read(self) -> list[Operation]:
        return [
            Operation(
                id=operation["operationId"],
                method=method.upper(),
                template=template,
                parameters=tuple(map(self.resolve, operation["parameters"])),
                pages="x-ms-pageable" in operation,
            )
            for template, methods in self._document["paths"].items()
            for method, operation in methods.items()
        ]


def _shapes(operation: Operation) -> Iterator[tuple[str, re.Pattern[str]]]:
    for parameter in operation.parameters:
        if parameter["in"] == "path":
            least, most = parameter.get("minLength", 0), parameter.get("maxLength", "")
            pattern = f"(?s:(?=.{{{least},{most}}}\\Z))" + parameter.get("pattern", ".*").strip("^$")
            yield parameter["name"], re.compile(pattern, re.ASCII)


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) < 20 else text
