"""``run.json`` beside the folder of a run's logs: its code by digest, Python, packages, threads and machine.

Node 0 writes it when its ranks have been started, for tasks with a script. It reads names of folders and a few small
files, and starts no process: some milliseconds that no rank waits for. The code is kept on the share of the logs, each
file once, under the digest of its content, so that the run can be repeated after the script has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from string import Template

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from batchhvd.node.folder.document import TaskDocument

NAME = "run.json"
KEPT = ".batchhvd/code"
"""Where a share keeps code, by digest."""

_ROOT = "AZ_BATCHAI_JOB_MOUNT_ROOT"
_LOGS = "AZ_BATCHAI_STDOUTERR_DIR"
_MOST_FILES, _MOST_BYTES, _MOST_SEEN, _DEEPEST = 200, 4_000_000, 1000, 4
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_ENABLE_ONEDNN_OPTS")
_PACKAGE = re.compile(r"([^-]+)-([^-]+)(?:-py.*)?\.(?:dist|egg)-info")


def write(task: TaskDocument, variables: Mapping[str, str], folder: Path) -> str:
    """Writes what a run is made of, and returns what could not be kept of it, "" if all was.

    Args:
        task: the task; nothing is written if its script is not a file of this machine.
        variables: the environment of its ranks.
        folder: where its logs are.

    Raises:
        OSError: the record or the code cannot be written.
    """
    script = _expanded(task.get("script") or "", variables)
    if not os.path.isfile(script):
        return ""
    files, missing = _code(Path(script), folder)
    mount, share = _share(task["environment"].get(_LOGS, ""), variables)
    if share is not None:
        for name, digest in files.items():
            _keep(Path(script).parent / name, share / KEPT / digest)
    else:
        missing = "the logs are on no share of the job, so its code is not kept"
    document = {
        "version": 1,
        "script": task["script"],
        "code": files,
        "kept": f"${_ROOT}/{mount}/{KEPT}" if share is not None else "",
        "missing": missing,
        **_python(task["command"], variables),
        "threads": {name: variables[name] for name in _THREADS if name in variables},
        "machine": _machine(),
    }
    beside = folder.parent / f".{NAME}"
    beside.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    beside.replace(folder.parent / NAME)  # the folder itself holds what it held in 2018
    return missing


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    return Template(text).safe_substitute(variables)


def _code(script: Path, logs: Path) -> tuple[dict[str, str], str]:
    """Returns the digests of a script and of the Python files below its folder, and what was left out."""
    found, size = {script.name: _digest(script)}, script.stat().st_size
    for path in _modules(script.parent, logs):
        if path is None:
            return found, f"the script's folder holds more than {_MOST_SEEN} files and folders"
        size += path.stat().st_size
        if len(found) >= _MOST_FILES or size > _MOST_BYTES:
            return found, f"the script's folder holds more Python files than {_MOST_FILES}, or than {_MOST_BYTES} bytes"
        found[path.relative_to(script.parent).as_posix()] = _digest(path)
    return found, ""


def _modules(root: Path, logs: Path) -> Iterator[Path | None]:
    """Yields the Python files below a folder, few levels deep, and None where it has more files than a program has."""
    seen = 0
    for place, folders, names in os.walk(root):
        here = Path(place)
        deep = len(here.relative_to(root).parts) >= _DEEPEST
        known = {logs, *logs.parents}
        plain = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        folders[:] = [] if deep else [name for name in plain if here / name not in known]
        seen += len(folders) + len(names)
        if seen > _MOST_SEEN:
            yield None
            return
        yield from (here / name for name in sorted(names) if name.endswith(".py"))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _share(logs: str, variables: Mapping[str, str]) -> tuple[str, Path | None]:
    """Returns the mount that logs are on, and the folder that it leads to; None if they are on none of the job's."""
    head, *parts = logs.split("/")
    if head not in (f"${_ROOT}", f"${{{_ROOT}}}"):
        return "", None
    place = Path(variables[_ROOT])
    for count, part in enumerate(parts, 1):
        place = place / part
        if place.is_symlink():
            return "/".join(parts[:count]), place
    return "", None


def _keep(source: Path, target: Path) -> None:
    """Copies a file, unless there is one of its digest; that is marked as used, so that pruning leaves it."""
    if target.exists():
        os.utime(target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, beside)
    beside.replace(target)


def _python(command: str, variables: Mapping[str, str]) -> dict[str, object]:
    """Returns the interpreter of a command line, its version, and the versions of its packages."""
    try:
        word = shlex.split(command)[0]
    except (ValueError, IndexError):
        return {"python": "", "interpreter": "", "packages": {}}
    found = shutil.which(_expanded(word, variables), path=variables.get("PATH"))
    prefix = Path(found or "/").parent.parent
    return {"python": _version(prefix, found), "interpreter": found or "", "packages": _packages(prefix)}


def _version(prefix: Path, interpreter: str | None) -> str:
    """Returns the version that an environment was made with, or else that in the name of the interpreter."""
    settings = prefix / "pyvenv.cfg"
    if settings.exists():
        for line in settings.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            if name.strip() in ("version", "version_info"):
                return value.strip()
    return os.path.basename(os.path.realpath(interpreter or "")).removeprefix("python")


def _packages(prefix: Path) -> dict[str, str]:
    """Returns the versions of the packages below a prefix, from the names of the folders that installers leave."""
    found = {}
    for site in sorted(prefix.glob("lib/python3*/*-packages")):
        for name in sorted(os.listdir(site)):
            if match := _PACKAGE.fullmatch(name):
                found[match[1].lower().replace("_", "-")] = match[2]
    return found


def _machine() -> dict[str, object]:
    system = os.uname()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = f"{system.sysname} {system.release}"
    return {"host": system.nodename, "processor": _processor(), "cores": cores, "system": name}


def _processor() -> str:
    try:
        lines: Sequence[str] = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return os.uname().machine
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, os.uname().machine)
