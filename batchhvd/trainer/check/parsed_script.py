"""A script as the rules see it: its syntax tree, the meaning of its names, and what only some ranks do.

The script is neither run nor imported. Names are followed through assignments, arguments and results of its own
functions regardless of their scope, which is coarse but right for scripts; what is uncertain never counts against it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cached_property

from batchhvd.trainer.check.finding import Finding, Position

#: Horovod's names of the numbers that differ between ranks, and variables in which launchers set them.
RANKS = frozenset({"rank", "local_rank", "cross_rank", "get_rank", "getpid", "mkdtemp", "uuid4"})
_RANK_VARIABLE = re.compile(r"(^|_)(RANK|PROCID|LOCALID)$")
#: The package whose ``fit`` does everything that the rules ask for.
OURS = "batchhvd.trainer"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Script:
    """One parsed script.

    Attributes:
        text, name: the script, and its name in messages.
        tree: its syntax tree.
        origins: for each imported name the dotted thing that it stands for.
        values: for each assigned name, such as ``"x"`` or ``"self.x"``, every expression that is assigned to it.
        functions, classes: those that it defines, by name.
    """

    def __init__(self, text: str, name: str = "<script>") -> None:
        self.text, self.name = text, name
        self.tree = ast.parse(text, name)
        self.origins: dict[str, str] = {}
        self.values: dict[str, list[ast.expr]] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.functions: dict[str, _Function] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self._by_rank: dict[ast.AST, bool] = {}
        self._open: set[str] = set()
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
        for node in ast.walk(self.tree):
            self._note(node)
        for call in self.calls:
            self._bind(call)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.functions[node.name] = node
            self._defaults(node)
        elif isinstance(node, ast.ClassDef):
            self.classes[node.name] = node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            self._assign(node.target, node.value)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._assign(node.optional_vars, node.context_expr)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        front = f"{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
        instead = isinstance(self.parents.get(node), ast.ExceptHandler)
        for alias in node.names:
            short = alias.asname or (alias.name if front else alias.name.split(".")[0])
            origin = f"{front}{alias.name}" if front or alias.asname else ""
            if not (instead and short in self.origins):  # an import that only follows a failed one
                self.origins[short] = origin

    def _defaults(self, node: _Function) -> None:
        named = [*node.args.posonlyargs, *node.args.args]
        pairs = [*zip(named[::-1], node.args.defaults[::-1], strict=False)]
        pairs += [(one, value) for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value]
        for one, value in pairs:
            self.values.setdefault(one.arg, []).append(value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        name = key(target)
        if name:
            self.values.setdefault(name, []).append(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            parts = value.elts if same and isinstance(value, (ast.Tuple, ast.List)) else [value] * len(target.elts)
            for part, element in zip(target.elts, parts, strict=True):
                self._assign(part, element)

    def _bind(self, call: ast.Call) -> None:
        """Notes the arguments of a call of one of the script's functions as values of its parameters."""
        function = self.function(call)
        if function is None:
            return
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        known = {*names, *(one.arg for one in function.args.kwonlyargs)}
        names = names[1:] if names[:1] == ["self"] else names
        given = [*zip(names, call.args, strict=False)]
        given += [(part.arg, part.value) for part in call.keywords if part.arg in known and part.arg]
        for name, value in given:
            if not isinstance(value, ast.Starred):
                self.values.setdefault(name, []).append(value)

    def function(self, call: ast.Call) -> _Function | None:
        """Returns the script's own function that a call runs: a function, a class's constructor, a method of self."""
        if isinstance(call.func, ast.Name):
            name = call.func.id
            made = self.classes.get(name)
            if made is not None:
                return next((part for part in functions_of(made) if part.name == "__init__"), None)
            return self.functions.get(name) if name not in self.origins else None
        method = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        return self.functions.get(last(call.func)) if method and ast.unparse(call.func).startswith("self.") else None

    # --- looking up ---------------------------------------------------------------------------------------------------

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call, in the order of lines."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    @cached_property
    def _calls(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            found.setdefault(last(call.func), []).append(call)
        return found

    @cached_property
    def strings(self) -> set[str]:
        """Every string."""
        nodes = ast.walk(self.tree)
        return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}

    def dotted(self, node: ast.AST) -> str:
        """Returns what a name or attribute stands for, such as ``"keras.optimizers.SGD"``; "" if unknown."""
        if isinstance(node, ast.Name):
            return self.origins.get(node.id) or self.module(node.id)
        if isinstance(node, ast.Attribute):
            front = self.dotted(node.value)
            return f"{front}.{node.attr}" if front else ""
        return ""

    def module(self, name: str) -> str:
        """Returns what ``importlib.import_module`` or another name gave a name, or the name if it is imported."""
        for value in self.values.get(name, []):
            if isinstance(value, ast.Call) and last(value.func) == "import_module":
                texts = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
                found = [str(text) for text in texts if "horovod" in str(text) or "hvd" in str(text)]
                return "horovod" if found else ""
            if isinstance(value, ast.Attribute) and len(self.values[name]) == 1 and name not in self._open:
                self._open.add(name)  # a name may be made of itself
                found_name = self.dotted(value)  # layers = tf.keras.layers
                self._open.remove(name)
                return found_name
        return name if name in self.origins else ""

    def named(self, node: ast.AST) -> list[ast.expr]:
        """Returns the values of a name or attribute, and the results of a call of one of the script's functions."""
        if isinstance(node, ast.Call):
            function = self.function(node) if not isinstance(node.func, ast.Name) or node.func.id else None
            return results(function) if function is not None and function.name != "__init__" else []
        return self.values.get(key(node), [])

    def mentions(self, node: ast.AST | None, wanted: Callable[[ast.AST], bool]) -> bool:
        """Returns whether an expression contains such a node, also in the values of its names."""
        waiting, known = [node] if node is not None else [], set[ast.AST]()
        while waiting:
            part = waiting.pop()
            if part in known:
                continue
            known.add(part)
            if wanted(part):
                return True
            waiting += [*_parts(part), *self.named(part)]
        return False

    def by_rank(self, node: ast.AST | None) -> bool:
        """Returns whether an expression depends on the rank."""
        if node is not None and node not in self._by_rank:
            self._by_rank[node] = self.mentions(node, _ranks)
        return node is not None and self._by_rank[node]

    def by_size(self, node: ast.AST | None) -> bool:
        """Returns whether an expression depends on the number of ranks."""
        return self.mentions(
            node, lambda part: isinstance(part, ast.Call) and last(part.func) in ("size", "local_size")
        )

    # --- what only some ranks do --------------------------------------------------------------------------------------

    def guarded(self, node: ast.AST, _seen: frozenset[str] = frozenset()) -> bool:
        """Returns whether only some ranks reach a node."""
        for inner, parent in self._upwards(node):
            if self._decides(parent, inner) or self._after_leaving(parent, inner):
                return True
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if any("rank_zero" in ast.unparse(part) for part in parent.decorator_list):
                    return True
                if parent.name not in _seen and self._called_guarded(parent, _seen | {parent.name}):
                    return True
                if not isinstance(self.parents.get(parent), ast.ClassDef):
                    return False
        return False

    def _upwards(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        while node in self.parents:
            yield node, self.parents[node]
            node = self.parents[node]

    def _decides(self, parent: ast.AST, node: ast.AST) -> bool:
        if isinstance(parent, (ast.If, ast.IfExp, ast.While)):
            return node is not parent.test and self.by_rank(parent.test)
        return isinstance(parent, ast.BoolOp) and any(
            self.by_rank(value)
            for value in parent.values[: parent.values.index(node)]  # type: ignore[arg-type]
        )

    def _after_leaving(self, parent: ast.AST, node: ast.AST) -> bool:
        """Returns whether other ranks leave before a statement, as with ``if hvd.rank() != 0: sys.exit()``."""
        body = getattr(parent, "body", None)
        if not isinstance(body, list) or node not in body:
            return False
        return any(
            isinstance(before, ast.If) and self.by_rank(before.test) and _leaves(before.body[-1])
            for before in body[: body.index(node)]
        )

    def _called_guarded(self, part: _Function | ast.ClassDef, seen: frozenset[str]) -> bool:
        """Returns whether a function or class is used, and only by some ranks."""
        method = isinstance(self.parents.get(part), ast.ClassDef)
        kind = ast.Attribute if method else ast.Name
        uses = [call for call in self._calls.get(part.name, []) if isinstance(call.func, kind)]
        uses = [call for call in uses if not (method and self.dotted(call.func))]  # torch.save is not self.save
        return bool(uses) and all(self.guarded(call, seen) for call in uses)

    # --- places -------------------------------------------------------------------------------------------------------

    @cached_property
    def lines(self) -> list[str]:
        """The script's lines with their ends, as Python counts lines."""
        return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", self.text)

    def column(self, line: int, byte: int) -> int:
        """Returns the number of characters before a byte of a line."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return len(text.encode()[:byte].decode(errors="replace"))

    def placed(self, found: Finding) -> Finding:
        """Returns a finding whose columns count characters instead of bytes."""
        places = [
            Position(
                place.line,
                self.column(place.line, place.column - 1) + 1,
                place.end_line,
                self.column(place.end_line, place.end_column - 1) + 1,
            )
            for place in found.places
        ]
        return Finding(found.code, tuple(places), found.problem, found.remedy, found.nodes)


def key(node: ast.AST) -> str:
    """Returns the name under which values are kept: ``x`` or ``self.x``; "" for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    front = key(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{front}.{node.attr}" if front and isinstance(node, ast.Attribute) else ""


def last(node: ast.AST) -> str:
    """Returns the last part of a dotted name, such as "rank" of ``hvd.rank``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def keyword(call: ast.Call, *names: str) -> ast.expr | None:
    """Returns a keyword argument of a call, None if it is not given."""
    return next((part.value for part in call.keywords if part.arg in names), None)


def arguments(call: ast.Call) -> list[ast.expr]:
    """Returns all arguments of a call."""
    return [*call.args, *(part.value for part in call.keywords)]


def functions_of(node: ast.ClassDef) -> list[_Function]:
    """Returns the methods of a class."""
    return [part for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]


def results(function: _Function) -> list[ast.expr]:
    """Returns what a function may return."""
    return [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the parts of an expression, without what only decides what a call shows."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.keyword) and child.arg in ("verbose", "callbacks")):
            yield child


def _ranks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return last(node.func) in RANKS and not ast.unparse(node.func).startswith(("tf.", "keras.", "np."))
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_RANK_VARIABLE.search(node.value))


def _leaves(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Return, ast.Raise, ast.Continue)):
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and last(call.func) in {"exit", "_exit", "quit"}
