"""A finding: its code, its places, what is wrong, and what to write instead."""

from __future__ import annotations

import ast

from attrs import field, frozen


@frozen(order=True)
class Position:
    """A piece of a script: lines and columns from 1, the end column being the first one after it."""

    line: int
    column: int = 1
    end_line: int = 1
    end_column: int = 1


@frozen
class Finding:
    """One defect of a script.

    Attributes:
        code: the kind of defect; one of `codes.CODES`.
        places: where it is; the first is the best place to fix it.
        problem: what is wrong, and its effect.
        remedy: what to write instead.
    """

    code: str
    places: tuple[Position, ...]
    problem: str
    remedy: str
    #: What the fixer needs to know of each place; None for a line without a node.
    nodes: tuple[ast.AST | None, ...] = field(default=(), repr=False, eq=False)

    @property
    def line(self) -> int:
        """The line of the first place."""
        return self.places[0].line

    @property
    def column(self) -> int:
        """The column of the first place."""
        return self.places[0].column

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines of all places, each once."""
        return tuple(dict.fromkeys(place.line for place in self.places))


def finding(code: str, node: ast.AST | int, problem: str, remedy: str, *more: ast.AST) -> Finding:
    """Returns a finding at a node of the syntax tree, or at a line; ``more`` are further nodes."""
    if isinstance(node, int):
        return Finding(code, (Position(node, 1, node, 1),), problem, remedy, (None,))
    nodes = (node, *more)
    return Finding(code, tuple(map(position, nodes)), problem, remedy, nodes)


def position(node: ast.AST) -> Position:
    """Returns the place of a node; columns count bytes until `Script` has corrected them."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    end = getattr(node, "end_lineno", None) or line
    return Position(line, column + 1, end, (getattr(node, "end_col_offset", None) or column) + 1)
