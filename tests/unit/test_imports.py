"""Who may import whom, as data; and what importing the package brings along.

A level may import the levels below it, and modules of its own level as long as no cycle comes of it. What is imported
only for type checkers does not count; what is imported inside a function counts, unless it is named in ``LATE``.
"""

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import batchhvd

PACKAGE = Path(batchhvd.__file__).parent

# From the top down. A package stands for all its modules.
LEVELS = [
    {"batchhvd.__main__", "batchhvd.cli"},
    {"batchhvd.cli_*", "batchhvd.commands*", "batchhvd.doctor", "batchhvd.tutorial"},
    {"batchhvd.curves", "batchhvd.display", "batchhvd.terminal"},
    {"batchhvd"},
    {"batchhvd.session"},
    {"batchhvd.workspace"},
    {
        "batchhvd.cluster",
        "batchhvd.explain",
        "batchhvd.job",
        "batchhvd.output",
        "batchhvd.plan",
        "batchhvd.storage",
        "batchhvd.survey",
    },
    {"batchhvd.metrics", "batchhvd.progress", "batchhvd.progress_text"},
    {"batchhvd.logstream", "batchhvd.selection", "batchhvd.transfer"},
    {"batchhvd.resource"},
    {"batchhvd.connection"},
    {"batchhvd.localservice", "batchhvd.loopback", "batchhvd.polling"},
    {
        "batchhvd.clusterspec",
        "batchhvd.durations",
        "batchhvd.jobfields",
        "batchhvd.jobfile",
        "batchhvd.jobschema",
        "batchhvd.jobspec",
        "batchhvd.mounts",
        "batchhvd.placeholders",
        "batchhvd.specdocument",
        "batchhvd.tasks",
    },
    {"batchhvd._version", "batchhvd.errors"},
]
# The parts that are no client: what each may import besides itself.
PARTS = {
    "batchhvd.service": {"batchhvd._version", "batchhvd.engines.base", "batchhvd.errors"},
    "batchhvd.engines": {"batchhvd.errors", "batchhvd.node"},
    "batchhvd.node": set(),
    "batchhvd.trainer": {"batchhvd.errors", "batchhvd.node"},
}
# Inside a function and upwards: what something looks like in a notebook is asked for only there.
LATE = {("batchhvd.metrics", "batchhvd.display"), ("batchhvd.resource", "batchhvd.display")}


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("batchhvd", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@functools.cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Returns every imported module of the package, and whether it is imported when this one is."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, bool]]:
    for node, early in _walk(ast.parse(path.read_text(encoding="utf-8")), True):
        if isinstance(node, ast.Import):
            yield from ((alias.name, early) for alias in node.names if alias.name.split(".")[0] == "batchhvd")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if (node.module or "").split(".")[0] == "batchhvd":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield (inner if inner in MODULES else str(node.module)), early


def _walk(node: ast.AST, early: bool) -> Iterator[tuple[ast.AST, bool]]:
    yield node, early
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and child in node.body:
            continue
        yield from _walk(child, early and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)))


def part(module: str) -> str:
    return next((name for name in PARTS if module == name or module.startswith(name + ".")), "")


def level(module: str) -> int | None:
    for number, names in enumerate(LEVELS):
        if module in names or any(name.endswith("*") and module.startswith(name[:-1]) for name in names):
            return number
    return None


@pytest.mark.parametrize("module", sorted(name for name in MODULES if not part(name)))
def test_the_client_imports_downwards(module: str) -> None:
    own = level(module)
    assert own is not None, f"{module} has no level yet: give it one in LEVELS"
    for other, _ in imports(MODULES[module]):
        assert not part(other), f"{module} imports {other}: the client knows no other part"
        reached = level(other)
        allowed = reached is not None and reached >= own
        assert allowed or (module, other) in LATE, f"{module} imports {other}, which is not below it"


@pytest.mark.parametrize("module", sorted(name for name in MODULES if part(name)))
def test_the_other_parts_keep_to_themselves(module: str) -> None:
    own = part(module)
    for other, _ in imports(MODULES[module]):
        assert part(other) == own or {other, part(other)} & PARTS[own], f"{module} imports {other}"


@pytest.mark.parametrize("module", sorted(name for name in MODULES if name.startswith("batchhvd.node")))
def test_the_node_runner_stands_alone(module: str) -> None:
    names = {
        alias.name
        for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in ([ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
        if not alias.name.startswith("batchhvd.node")
    }
    assert {name.split(".")[0] for name in names} <= {*sys.stdlib_module_names, "__future__"}


def test_no_import_goes_in_a_circle() -> None:
    graph = {name: {other for other, early in imports(path) if early} - {name} for name, path in MODULES.items()}
    for name in graph:  # importing a.b imports a first; that arrow is Python's own
        graph[name] -= {name.rpartition(".")[0], "batchhvd"}
    while leaves := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph, f"circles among {sorted(graph)}"


def test_only_the_session_and_programs_read_the_environment() -> None:
    for module, path in MODULES.items():
        if (
            module == "batchhvd.session"
            or module.endswith("__main__")
            or part(module) in ("batchhvd.trainer", "batchhvd.node")
        ):
            continue
        if module == "batchhvd.cli" or module.startswith("batchhvd.cli_"):
            continue  # programs of their own
        text = path.read_text(encoding="utf-8")
        # A child that gets the whole environment is something else than a setting read from it.
        assert not re.search(r"os\.environ(\[|\.get)|os\.getenv|getpass\.getuser", text), module


def fresh(code: str) -> list[str]:
    """Runs code in a new interpreter and returns the names of the modules that are loaded then."""
    command = [sys.executable, "-c", f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    loaded: list[str] = json.loads(done.stdout)
    return loaded


def roots(loaded: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in loaded}


def test_importing_the_package_loads_little() -> None:
    loaded = fresh("import batchhvd")
    heavy = {
        "azure",
        "msrest",
        "requests",
        "tensorflow",
        "keras",
        "torch",
        "starlette",
        "uvicorn",
        "horovod",
        "tenacity",
    }
    assert not roots(loaded) & heavy
    assert [name for name in loaded if name.startswith("batchhvd")] == [
        "batchhvd",
        "batchhvd._version",
        "batchhvd.errors",
    ]


def test_job_files_need_neither_azure_nor_a_service() -> None:
    assert not roots(fresh("from batchhvd import JobSpec, Horovod, Mount")) & {"azure", "starlette", "tenacity"}


def test_the_client_loads_no_service_and_no_trainer() -> None:
    loaded = fresh("import batchhvd\nfor name in batchhvd.__all__: getattr(batchhvd, name)")
    assert not [name for name in loaded if part(name)]
    assert not roots(loaded) & {"tensorflow", "keras", "starlette", "uvicorn"}


def test_public_names_are_sorted_and_real() -> None:
    assert batchhvd.__all__ == sorted(batchhvd.__all__, key=lambda name: (name[0].islower(), name))
    for name in batchhvd.__all__:
        assert getattr(batchhvd, name) is not None
    assert set(batchhvd.__all__) <= set(dir(batchhvd))
    with pytest.raises(AttributeError, match="no attribute 'Clutser'"):
        batchhvd.Clutser  # noqa: B018  # the access is the test
