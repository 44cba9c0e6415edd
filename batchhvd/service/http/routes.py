"""Finds what a path leads to: templates such as ``/subscriptions/{id}`` as a tree, case-insensitive."""

from __future__ import annotations

from typing import Generic, TypeVar
from urllib.parse import unquote

from attrs import Factory, define, frozen

from batchhvd.errors import BadRequestError, NotFoundError

T = TypeVar("T")


@frozen
class Match(Generic[T]):
    """What a path led to.

    Attributes:
        target: what was registered for the template and the method.
        names: the values of the template's parameters, decoded, in the case they came in.
    """

    target: T
    names: dict[str, str]


@define
class _Node(Generic[T]):
    children: dict[str, _Node[T]] = Factory(dict)
    any: _Node[T] | None = None
    targets: dict[str, tuple[T, tuple[str, ...]]] = Factory(dict)


class Routes(Generic[T]):
    """A tree of path templates; a literal segment wins over a parameter."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, method: str, template: str, target: T) -> None:
        """Registers a target for a method and a template."""
        node, names = self._root, []
        for segment in filter(None, template.split("/")):
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.any = node = node.any or _Node()
            else:
                node = node.children.setdefault(segment.lower(), _Node())
        node.targets[method] = (target, tuple(names))

    def match(self, method: str, path: str) -> Match[T]:
        """Returns what a raw (percent-encoded) path leads to.

        Raises:
            NotFoundError: no template fits.
            BadRequestError: a template fits, but not with this method (405), or a segment is not UTF-8 (400).
        """
        nodes = _reached(self._root, segments(path))
        for node, values in nodes:
            if method in node.targets:
                target, names = node.targets[method]
                return Match(target, dict(zip(names, values, strict=True)))
        methods = sorted({known for node, _ in nodes for known in node.targets})
        if methods:
            raise BadRequestError(
                f"{method} is not allowed at this path; allowed: {', '.join(methods)}.",
                status=405,
                code="MethodNotAllowed",
            )
        raise NotFoundError(f"There is no resource at {path}.", code="InvalidResourcePath")


def segments(path: str) -> list[str]:
    """Returns a raw path's segments, decoded; doubled and trailing slashes do not count.

    Raises:
        BadRequestError: a segment is not UTF-8.
    """
    parts = [part for part in path.split("/") if part]
    if "%" not in path:
        return parts
    try:
        return [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError as error:
        raise BadRequestError("The path is not UTF-8.", code="InvalidRequestUri") from error


def _reached(root: _Node[T], parts: list[str]) -> list[tuple[_Node[T], tuple[str, ...]]]:
    """Returns the nodes that a path leads to, with the values of its parameters; the most literal one first."""
    found: list[tuple[_Node[T], tuple[str, ...]]] = [(root, ())]
    for part in parts:
        literal, following = part.lower(), []
        for node, values in found:
            if literal in node.children:
                following.append((node.children[literal], values))
            if node.any is not None:
                following.append((node.any, (*values, part)))
        found = following
    return found
