"""Changes of a script's text, made at the places of its syntax tree, so that comments and layout stay as they are."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from attrs import frozen

from batchhvd.trainer.check.parsed_script import Script


@frozen(order=True)
class TextEdit:
    """The characters from ``start`` to ``end`` of a script become ``text``."""

    start: int
    end: int
    text: str


class Editor:
    """Makes edits for one script.

    Attributes:
        script: the script as it is.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self._starts = [0]
        for line in script.lines:
            self._starts.append(self._starts[-1] + len(line))
        self.newline = "\r\n" if script.lines and script.lines[0].endswith("\r\n") else "\n"

    # --- places -------------------------------------------------------------------------------------------------------

    def start(self, node: ast.AST) -> int:
        """Returns the offset at which a node begins."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return self._starts[line - 1] + self.script.column(line, column)

    def end(self, node: ast.AST) -> int:
        """Returns the offset after a node."""
        line, column = getattr(node, "end_lineno", 1), getattr(node, "end_col_offset", 0)
        return self._starts[line - 1] + self.script.column(line, column)

    def source(self, node: ast.AST) -> str:
        """Returns the text of a node as it is written."""
        return self.script.text[self.start(node) : self.end(node)]

    def indent(self, node: ast.AST) -> str:
        """Returns the white space before a statement."""
        line = self.script.lines[getattr(node, "lineno", 1) - 1]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def alone(self, node: ast.stmt) -> bool:
        """Returns whether a statement has its lines for itself."""
        lines = self.script.lines
        before = lines[node.lineno - 1][: self.script.column(node.lineno, node.col_offset)]
        last = node.end_lineno or node.lineno
        after = lines[last - 1][self.script.column(last, node.end_col_offset or 0) :].strip()
        return not before.strip(" \t\f") and (not after or after.startswith("#"))

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Returns the innermost statement that contains a node."""
        while not isinstance(node, ast.stmt):
            if node not in self.script.parents:
                return None
            node = self.script.parents[node]
        return node

    # --- edits --------------------------------------------------------------------------------------------------------

    def replace(self, node: ast.AST, text: str) -> TextEdit:
        """Writes something else for a node."""
        return TextEdit(self.start(node), self.end(node), text)

    def wrap(self, node: ast.AST, before: str, after: str) -> TextEdit:
        """Writes something around a node."""
        return self.replace(node, f"{before}{self.source(node)}{after}")

    def before(self, statement: ast.stmt, *lines: str) -> TextEdit:
        """Adds lines before a statement, indented as it is."""
        first = min([statement.lineno, *(part.lineno for part in getattr(statement, "decorator_list", []))])
        place, indent = self._starts[first - 1], self.indent(statement)
        return TextEdit(place, place, "".join(f"{indent if line else ''}{line}{self.newline}" for line in lines))

    def after(self, statement: ast.stmt, *lines: str) -> TextEdit:
        """Adds lines after a statement, indented as it is."""
        last = statement.end_lineno or statement.lineno
        indent, text = self.indent(statement), self.script.lines[last - 1]
        end = self._starts[last]
        added = "".join(f"{indent if line else ''}{line}{self.newline}" for line in lines)
        return TextEdit(end, end, added if text.endswith(("\n", "\r")) else f"{self.newline}{added}")

    def keyword(self, call: ast.Call, text: str) -> TextEdit:
        """Adds an argument at the end of a call."""
        given = [*call.args, *call.keywords]
        if not given:
            end = self.end(call) - 1
            return TextEdit(end, end, text)
        end = max(map(self.end, given))
        tail = self.script.text[end : self.end(call) - 1]
        if tail.strip() == ")":  # an argument in parentheses of its own
            end += tail.index(")") + 1
        return TextEdit(end, end, f", {text}")

    def without(self, call: ast.Call, part: ast.keyword) -> TextEdit:
        """Takes an argument out of a call, with the comma that belongs to it."""
        given = sorted([*call.args, *call.keywords], key=self.start)
        place, start, end = given.index(part), self.start(part), self.end(part)
        until = self.start(given[place + 1]) if place + 1 < len(given) else self.end(call) - 1
        after = self.script.text[end:until]
        if after.lstrip().startswith(",") and ("#" in after or place + 1 == len(given)):
            until = end + after.index(",") + 1  # what follows is a comment, which stays, or the closing bracket
        elif place + 1 == len(given):
            before = self.end(given[place - 1]) if place else start
            start, until = (start if "#" in self.script.text[before:start] else before), end
        return TextEdit(start, until, "")

    def guarded(self, statements: Iterable[ast.stmt], test: str) -> Iterator[TextEdit]:
        """Puts statements under a test; those that follow each other share one."""
        todo = sorted(set(statements), key=lambda one: one.lineno)
        ends: set[ast.stmt] = set()
        for statement in todo:
            indent = self.indent(statement)
            more = "\t" if "\t" in indent else "    "
            if not self._follows(statement, ends):
                place = self._starts[statement.lineno - 1]
                yield TextEdit(place, place, f"{indent}if {test}:{self.newline}")
            ends.add(statement)
            for line in self._indentable(statement):
                place = self._starts[line - 1]
                yield TextEdit(place, place, more)

    def _follows(self, statement: ast.stmt, others: set[ast.stmt]) -> bool:
        siblings = self.siblings(statement)
        place = siblings.index(statement)
        return place > 0 and siblings[place - 1] in others

    def siblings(self, statement: ast.stmt) -> list[ast.stmt]:
        """Returns the block in which a statement stands."""
        parent = self.script.parents[statement]
        blocks = (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
        return next(block for block in blocks if isinstance(block, list) and statement in block)

    def _indentable(self, statement: ast.stmt) -> list[int]:
        """Returns a statement's lines, without those that begin inside a string."""
        inside: set[int] = set()
        for node in ast.walk(statement):
            if isinstance(node, (ast.Constant, ast.JoinedStr)) and isinstance(getattr(node, "value", ""), (str, bytes)):
                inside.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
        last = statement.end_lineno or statement.lineno
        lines = (line for line in range(statement.lineno, last + 1) if line not in inside)
        return [line for line in lines if self.script.lines[line - 1].strip()]


def applied(text: str, edits: Iterable[TextEdit]) -> str:
    """Returns a text with edits made; of two that overlap, the first one is."""
    parts, place = [], 0
    for edit in sorted(dict.fromkeys(edits), key=lambda one: (one.start, one.end)):
        if edit.start >= place:
            parts += [text[place : edit.start], edit.text]
            place = edit.end
    return "".join([*parts, text[place:]])
