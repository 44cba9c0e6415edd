"""Builds the node runner as one file, ``node-<digest>.pyz``, which an engine puts into a task's folder.

The file contains the sources and the code that this Python compiles from them; any other Python compiles the sources
itself. The name is derived from the content, so a running task keeps its own runner when the package is upgraded.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import marshal
import os
import sys
import zipfile
from pathlib import Path

from batchhvd.node.folder.durable import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = Path(__file__).parent
_LEFT_OUT = ("__main__.py", "archive.py", "folder/document.py")
_STUBS = {
    "__main__.py": b"import sys\n\nfrom batchhvd.node.start import main\n\nsys.exit(main(sys.argv[1:]))\n",
    "batchhvd/__init__.py": b"",
}
_HASHED = (1).to_bytes(4, "little")  # PEP 552: used without a look at the source file's time, which a copy would change


def name() -> str:
    """Returns the name of the archive."""
    digest = hashlib.sha256(importlib.util.MAGIC_NUMBER)
    for place, source in _sources().items():
        digest.update(b"%s\0%d\0%s" % (place.encode(), len(source), source))
    return f"node-{digest.hexdigest()[:12]}.pyz"


def write(folder: Path, *, lasting: bool = True) -> Path:
    """Writes the archive into a folder that does not have it yet, and returns its path.

    Args:
        folder: an existing folder, such as a task's.
        lasting: whether it must be whole after a power cut; a run on this machine alone does not outlive one.
    """
    path = folder / name()
    if not path.exists():
        replace(path, _content(), synced=lasting)
    return path


def command(folder: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Returns the command line that starts nodes of a task whose folder contains the archive.

    Args:
        folder: the task's folder.
        arguments: indices of nodes, and options.
        python: the interpreter. It runs in isolation: neither the working directory nor any variable of the job
            changes what is imported.
    """
    return [python, "-I", "-S", os.path.join(folder, name()), folder, *arguments]


def alone(directory: str, variables: Mapping[str, str]) -> list[str]:
    """Returns the words before a command line with which it runs on this machine as on a node without a task.

    Args:
        directory: its working directory.
        variables: variables beside those of who starts it; no secrets, because everybody can see them.
    """
    own = [f"{name}={value}" for name, value in variables.items()]
    return ["/usr/bin/env", *own, sys.executable, "-I", "-S", str(FOLDER), directory, "--alone"]


@functools.cache
def _sources() -> dict[str, bytes]:
    places = {path.relative_to(FOLDER).as_posix(): path for path in sorted(FOLDER.rglob("*.py"))}
    own = {f"batchhvd/node/{place}": path.read_bytes() for place, path in places.items() if place not in _LEFT_OUT}
    return {**_STUBS, **own}


@functools.cache
def _content() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for place, data in _members():
            file.writestr(zipfile.ZipInfo(place), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _members() -> Iterator[tuple[str, bytes]]:
    for place, source in _sources().items():
        yield place, source
        yield f"{place}c", _compiled(place, source)


def _compiled(place: str, source: bytes) -> bytes:
    """Returns the content of a .pyc file; a Python with another magic number ignores it."""
    code = compile(source, place, "exec", dont_inherit=True)
    head = importlib.util.MAGIC_NUMBER + _HASHED + importlib.util.source_hash(source)
    return head + marshal.dumps(code)
