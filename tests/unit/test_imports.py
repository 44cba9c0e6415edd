"""Who may import whom, as data; and what importing the package brings along.

Each package is a room. A room may import the rooms that ``ARROWS`` names and no other, at its start or inside a
function; what is imported only for type checkers does not count. No module imports another in a circle, however late.
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
DOCS = PACKAGE.parent / "docs"

# Every room but node may also import errors and _version. The face, "batchhvd", finds its names when asked for them.
ARROWS = {
    "__main__": "cli",
    "cli": "cli.flows cli.frame batchhvd advice.scaling resources "
    "resources.studies resources.values sweeps views logs wire wire.facts",
    "cli.flows": "cli.frame batchhvd resources views logs wire wire.facts",
    "cli.frame": "batchhvd resources views logs wire wire.facts",
    "batchhvd": "",
    "resources": "resources.values resources.studies advice functions sweeps views logs transfer spec wire wire.facts",
    "resources.studies": "resources.values advice advice.scaling logs transfer spec wire wire.facts",
    "resources.values": "sweeps views logs wire wire.facts",
    "functions": "",
    "views": "logs wire.facts",
    "advice": "spec wire wire.facts",
    "advice.scaling": "",
    "transfer": "wire",
    "logs": "wire wire.facts",
    "sweeps": "spec wire.facts",
    "spec": "wire.facts",
    "wire": "wire.facts",
    "wire.facts": "",
    "service": "service.arm service.batchai service.blobs service.files service.status service.scheduler "
    "service.drills service.mounts service.login service.description service.http service.store engines wire.facts",
    "service.batchai": "service.arm service.login service.mounts service.description service.http service.store "
    "wire.facts",
    "service.login": "service.mounts service.http service.store engines node wire.facts",
    "service.arm": "service.description service.http service.store wire.facts",
    "service.status": "service.scheduler service.http service.store wire.facts",
    "service.drills": "service.storage.disk service.store",
    "service.scheduler": "service.mounts service.store engines wire.facts",
    "service.mounts": "service.description service.http service.store wire.facts",
    "service.blobs": "service.storage service.storage.disk service.storage.protocol",
    "service.files": "service.files.operations service.files.protocol service.storage service.storage.disk "
    "service.storage.protocol",
    "service.files.operations": "service.files.protocol service.storage service.storage.disk service.storage.protocol",
    "service.files.protocol": "service.storage.protocol",
    "service.storage": "service.storage.disk service.storage.protocol",
    "service.storage.disk": "service.storage.protocol",
    "service.storage.protocol": "wire.facts",
    "service.description": "wire.facts",
    "service.http": "service.store wire.facts",
    "service.store": "wire.facts",
    "engines": "node node.folder node.sandbox node.container",
    "engines.slurm": "engines node node.folder",
    "engines.export": "engines engines.slurm node node.folder",
    "node": "node.folder node.launch node.sandbox node.container node.provenance",
    "node.provenance": "node.folder",
    "node.container": "node.folder",
    "node.folder": "",
    "node.launch": "node.folder",
    "node.sandbox": "",
    "filesystem": "batchhvd",
    "testing": "batchhvd resources service service.files service.http service.storage service.storage.protocol "
    "service.store engines wire wire.facts",
    "errors": "",
    "_version": "",
    "trainer": "trainer.hvd trainer.reporting trainer.lowering trainer.optimizers",
    "trainer.lowering": "",
    "trainer.optimizers": "",
    "trainer.measure": "trainer trainer.hvd trainer.optimizers node node.launch",
    "trainer.scaling": "trainer trainer.hvd trainer.measure advice.scaling",
    "trainer.check": "trainer.hvd",
    "trainer.install": "trainer.measure",
    "trainer.hvd": "trainer.exchange trainer.reporting",
    "trainer.reporting": "",
    "trainer.exchange": "",
}


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("batchhvd", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}
FREE = {"errors", "_version"}


def room(module: str) -> str:
    """Returns the package of a module, without the leading ``batchhvd``; a module at the top is a room of its own."""
    package = module if module in PACKAGES or module.count(".") == 1 else module.rpartition(".")[0]
    return package.removeprefix("batchhvd.")


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Returns every module of the package that a module imports, early or late."""
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in _walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "batchhvd")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if (node.module or "").split(".")[0] == "batchhvd":
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (name if name in MODULES else str(node.module) for name in inner)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and child in node.body:
            continue
        yield from _walk(child)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_follow_the_arrows(module: str) -> None:
    own = room(module)
    assert own in ARROWS, f"{own} is a new room: name it in ARROWS and in docs/architecture.md"
    allowed = {own, *ARROWS[own].split(), *(() if own.startswith("node") else FREE)}
    wrong = sorted(other for other in imports(MODULES[module]) if room(other) not in allowed)
    assert not wrong, f"{module} imports {wrong}"


def test_the_arrows_go_in_no_circle() -> None:
    graph = {name: set(below.split()) for name, below in ARROWS.items()}
    assert not _circles(graph)


def test_no_import_goes_in_a_circle() -> None:
    assert not _circles({name: set(imports(path)) - {name} for name, path in MODULES.items()})


def _circles(graph: dict[str, set[str]]) -> list[str]:
    left = dict(graph)
    while leaves := [name for name, others in left.items() if not others & left.keys()]:
        for name in leaves:
            del left[name]
    return sorted(left)


def test_every_room_is_in_the_architecture_page() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    packages = [name.removeprefix("batchhvd.").replace(".", "/") for name in PACKAGES - {"batchhvd"}]
    missing = [name for name in packages if f"`{name}/`" not in page]
    assert not missing, f"docs/architecture.md does not name {missing}"


def test_the_architecture_page_names_files_that_exist() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w.-]+/[\w./-]*)`", page))
    assert len(named) > 40
    assert not [name for name in named if not (PACKAGE / name).exists() and not (PACKAGE.parent / name).exists()]


def test_the_architecture_page_draws_the_arrows() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    block = re.findall(r"^```text\n(__main__ ─> .*?)^```", page, re.M | re.S)[0]
    drawn = [arrow.strip() for arrow in re.split(r"\n| {4,}", block) if arrow.strip()]
    direct = {own: below.split() for own, below in ARROWS.items()}
    follows = {own: {far for below in direct[own] for far in _below(below, direct)} for own in direct}
    kept = {own: [below for below in direct[own] if below not in follows[own]] for own in direct}
    assert sorted(drawn) == sorted(f"{own} ─> {', '.join(below)}" for own, below in kept.items() if below)


def _below(own: str, direct: dict[str, list[str]]) -> set[str]:
    return {far for below in direct[own] for far in (below, *_below(below, direct))}


def test_the_node_runner_needs_the_standard_library_only() -> None:
    for module, path in MODULES.items():
        if room(module).startswith("node"):
            tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            names = {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
            tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            names |= {str(node.module) for node in tree if isinstance(node, ast.ImportFrom)}
            assert {name.split(".")[0] for name in names} <= {*sys.stdlib_module_names, "batchhvd"}, module


def test_only_the_session_the_settings_and_programs_read_the_environment() -> None:
    for module, path in MODULES.items():
        own = room(module)
        if (
            module in ("batchhvd.resources.session", "batchhvd.wire.configuration", "batchhvd.wire.roots")
            or module.endswith("__main__")
            or own.startswith("trainer")
        ):
            continue
        if own.startswith(("cli", "node")):
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
        "cloudpickle",
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
    assert not [
        name
        for name in loaded
        if name.startswith(("batchhvd.service", "batchhvd.engines", "batchhvd.node", "batchhvd.trainer"))
    ]
    assert not roots(loaded) & {"tensorflow", "keras", "starlette", "uvicorn"}


def test_public_names_are_sorted_and_real() -> None:
    assert batchhvd.__all__ == sorted(batchhvd.__all__, key=lambda name: (name[0].islower(), name))
    for name in batchhvd.__all__:
        assert getattr(batchhvd, name) is not None
    assert set(batchhvd.__all__) <= set(dir(batchhvd))
    with pytest.raises(AttributeError, match="no attribute 'Clutser'"):
        batchhvd.Clutser  # noqa: B018  # the access is the test
