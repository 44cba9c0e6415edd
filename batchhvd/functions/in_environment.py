"""Runs a script in a virtual environment, which is made first if this machine does not have it yet.

    python in_environment.py REQUIREMENTS SCRIPT ARGUMENTS...

The file travels to the nodes by itself; it needs the standard library only. An environment is known by the text of its
requirements and by the Python that makes it, lies in ``~/.cache/batchhvd/environments`` and is shared by all jobs. It
adds to the packages of that Python, and its own versions come first. ``uv`` makes it where there is one, else ``pip``.
Both also look into the folder ``wheels`` beside the script, for nodes that reach no index of packages.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

_PLACE = "~/.cache/batchhvd/environments"
_OFFLINE = "nodes without a network take packages from a folder 'wheels' beside the script (pip download -d wheels)"


def name_of(requirements: bytes, python: str) -> str:
    """Returns the name of the environment of some requirements for a Python."""
    return hashlib.sha256(python.encode() + b"\0" + requirements).hexdigest()[:16]


def environment(requirements: Path, wheels: Path) -> Path:
    """Returns the folder of the environment; makes it if it is not there, while other ranks wait for it.

    Args:
        requirements: the file of requirements.
        wheels: a folder of packages, which need not exist.

    Raises:
        subprocess.CalledProcessError: a package cannot be installed; nothing is left behind.
        OSError: the folder cannot be written.
    """
    place = Path(_PLACE).expanduser()
    place.mkdir(parents=True, exist_ok=True)
    folder = place / name_of(requirements.read_bytes(), f"{sys.executable} {sys.version}")
    with (place / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)  # what an interrupted one has left
            _make(folder, requirements, wheels)
            (folder / "complete").touch()
    return folder


def _make(folder: Path, requirements: Path, wheels: Path) -> None:
    print(f"batchhvd: installing {requirements.name} into {folder}", file=sys.stderr, flush=True)
    tool = shutil.which("uv")
    venv.create(folder, with_pip=tool is None, symlinks=True)
    python = str(folder / "bin" / "python")
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    # What this Python has comes after the environment's own; --target of pip would not see it.
    (packages / "of-the-node.pth").write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [tool, "pip", "install", "--quiet", "--python", python] if tool else pip
    near = ["--find-links", str(wheels)] if wheels.is_dir() else []
    subprocess.run([*command, *near, "--requirement", str(requirements)], check=True, stdout=sys.stderr)


def main(requirements: str, *command: str) -> int:
    """Becomes the script in the environment; returns an exit code if that is not possible."""
    try:
        folder = environment(Path(requirements), Path(command[0]).absolute().parent / "wheels")
    except subprocess.CalledProcessError as error:
        print(f"batchhvd: {Path(requirements).name} cannot be installed, see above; {_OFFLINE}", file=sys.stderr)
        return error.returncode or 1
    except OSError as error:
        print(f"batchhvd: no environment can be made in {_PLACE}: {error}", file=sys.stderr)
        return 1
    variables = dict(os.environ, VIRTUAL_ENV=str(folder))
    variables["PATH"] = os.pathsep.join([str(folder / "bin"), *filter(None, [variables.get("PATH")])])
    return os.execve(folder / "bin" / "python", ["python", *command], variables)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
