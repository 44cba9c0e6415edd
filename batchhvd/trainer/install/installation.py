"""What is installed in this environment (Horovod, the frameworks it is built for), and where its wheels are kept."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

#: The command that error messages name.
COMMAND = f"{sys.executable} -m batchhvd.trainer.install"
#: Keras backends that Horovod serves, by the name of the module.
BACKENDS = ("tensorflow", "torch")


def cache() -> Path:
    """Returns the folder in which wheels are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "batchhvd" / "horovod"


def installed() -> str:
    """Returns the version of Horovod in this environment, "" if it is not installed."""
    try:
        return metadata.version("horovod")
    except metadata.PackageNotFoundError:
        return ""


def framework_version(module: str) -> str:
    """Returns the version of a framework without importing it, "" if it is not installed."""
    if find_spec(module) is None:
        return ""
    for name in {"tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-rocm")}.get(module, (module,)):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    names = metadata.packages_distributions().get(module, [])
    return metadata.version(names[0]) if names else ""
