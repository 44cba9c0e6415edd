"""A script as the rules see it: its syntax tree, the meaning of its names, what only some ranks do; and a finding.

The script is neither run nor imported. Names are followed through assignments regardless of their scope, which is
coarse but right for scripts; what is uncertain never counts against the script.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property

from attrs import frozen

#: Horovod's names of the numbers that differ between ranks.
RANKS = frozenset({"rank", "local_rank", "cross_rank"})
#: The package whose ``fit`` does everything that the rules ask for.
OURS = "batchhvd.trainer"


@frozen
class Finding:
    """One defect of a script.

    Attributes:
        kind: a short name for the kind of defect.
        lines: its lines, from 1; the first is the best place to fix it.
        problem: what is wrong, and its effect.
        remedy: what to write instead.
    """

    kind: str
    lines: tuple[int, ...]
    problem: str
    remedy: str


def finding(kind: str, node: ast.AST | int, problem: str, remedy: str) -> Finding:
    """Returns a finding at a node of the syntax tree, or at a line."""
    return Finding(kind, (node if isinstance(node, int) else getattr(node, "lineno", 1),), problem, remedy)


class Script:
    """One parsed script.

    Attributes:
        tree: its syntax tree.
        origins: for each imported name the dotted thing that it stands for.
        values: for each assigned name every expression that is assigned to it.
    """

    def __init__(self, text: str, name: str = "<script>") -> None:
        self.tree = ast.parse(text, name)
        self.origins: dict[str, str] = {}
        self.values: dict[str, list[ast.expr]] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.origins[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else ""
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self.origins[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            self._assign(node.target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.values.setdefault(target.id, []).append(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            parts = value.elts if same and isinstance(value, (ast.Tuple, ast.List)) else [value] * len(target.elts)
            for part, element in zip(target.elts, parts, strict=True):
                self._assign(part, element)

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call, in the order of lines."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def dotted(self, node: ast.AST) -> str:
        """Returns what a name or attribute stands for, such as ``"keras.optimizers.SGD"``; "" if unknown."""
        if isinstance(node, ast.Name):
            return self.origins.get(node.id) or self.module(node.id)
        if isinstance(node, ast.Attribute):
            front = self.dotted(node.value)
            return f"{front}.{node.attr}" if front else ""
        return ""

    def module(self, name: str) -> str:
        """Returns the module that ``importlib.import_module`` gave a name, or the name if it is imported."""
        for value in self.values.get(name, []):
            if isinstance(value, ast.Call) and last(value.func) == "import_module":
                texts = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
                found = [str(text) for text in texts if "horovod" in str(text) or "hvd" in str(text)]
                return "horovod" if found else ""
        return name if name in self.origins else ""

    def mentions(self, node: ast.AST | None, wanted: Callable[[ast.AST], bool]) -> bool:
        """Returns whether an expression contains such a node, also in the values of its names."""
        waiting, known = [node] if node is not None else [], set[str]()
        while waiting:
            for part in ast.walk(waiting.pop()):
                if wanted(part):
                    return True
                if isinstance(part, ast.Name) and part.id not in known:
                    known.add(part.id)
                    waiting += self.values.get(part.id, [])
        return False

    def by_rank(self, node: ast.AST | None) -> bool:
        """Returns whether an expression depends on the rank."""
        return self.mentions(node, lambda part: isinstance(part, ast.Call) and last(part.func) in RANKS)

    def by_size(self, node: ast.AST | None) -> bool:
        """Returns whether an expression depends on the number of ranks."""
        return self.mentions(node, lambda part: isinstance(part, ast.Call) and last(part.func) == "size")

    def trains(self, call: ast.Call) -> bool:
        """Returns whether a call is the ``fit`` of a model, not that of a data generator or of this package."""
        method = isinstance(call.func, ast.Attribute) and call.func.attr in ("fit", "fit_generator", "train_on_batch")
        if not method or self.dotted(call.func).startswith(OURS):
            return False
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        return not self.mentions(receiver, lambda part: isinstance(part, ast.Call) and "Generator" in last(part.func))

    def guarded(self, node: ast.AST) -> bool:
        """Returns whether only some ranks reach a node."""
        while node in self.parents:
            parent = self.parents[node]
            if (
                isinstance(parent, (ast.If, ast.IfExp, ast.While))
                and node is not parent.test
                and self.by_rank(parent.test)
            ):
                return True
            if isinstance(parent, ast.BoolOp) and any(
                self.by_rank(value) for value in parent.values if value is not node
            ):
                return True
            if self._after_leaving(parent, node):
                return True
            method = isinstance(self.parents.get(parent), ast.ClassDef)
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not method:
                return self._called_guarded(parent.name)
            node = parent
        return False

    def _after_leaving(self, parent: ast.AST, node: ast.AST) -> bool:
        """Returns whether other ranks leave before a statement, as with ``if hvd.rank() != 0: sys.exit()``."""
        body = getattr(parent, "body", None)
        if not isinstance(body, list) or node not in body:
            return False
        return any(
            isinstance(before, ast.If) and self.by_rank(before.test) and _leaves(before.body[-1])
            for before in body[: body.index(node)]
        )

    def _called_guarded(self, name: str) -> bool:
        """Returns whether a function or class is used, and only by some ranks."""
        uses = [call for call in self.calls if isinstance(call.func, ast.Name) and call.func.id == name]
        return bool(uses) and all(self.guarded(call) for call in uses)


def last(node: ast.AST) -> str:
    """Returns the last part of a dotted name, such as "rank" of ``hvd.rank``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def keyword(call: ast.Call, *names: str) -> ast.expr | None:
    """Returns a keyword argument of a call, None if it is not given."""
    return next((part.value for part in call.keywords if part.arg in names), None)


def _leaves(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Return, ast.Raise, ast.Continue)):
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and last(call.func) in {"exit", "_exit", "quit"}
