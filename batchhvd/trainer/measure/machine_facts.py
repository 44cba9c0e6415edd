"""The machine of a measurement: processor, cores, system and versions."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import TypedDict

PACKAGES = ("batchhvd", "keras", "tensorflow", "torch", "horovod", "numpy")


class MachineFacts(TypedDict):
    """A machine; ``versions`` has the packages that are installed."""

    processor: str
    cores: int | None
    amx: bool
    system: str
    python: str
    versions: dict[str, str]


def machine() -> MachineFacts:
    """Returns the facts of this machine."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": named[0] if named else platform.processor(),
        "cores": os.cpu_count(),
        "amx": any("amx_bf16" in line for line in lines),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := installed_version(name))},
    }


def installed_version(package: str) -> str:
    """Returns the version of an installed package, "" if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
