"""Where the local service of a user has its folder. The shell's completion imports this, and waits for it."""

from __future__ import annotations

import os
from pathlib import Path

Root = str | os.PathLike[str]


def default_root() -> Path:
    """Returns the service's folder when nobody names one: ``$BATCHHVD_ROOT``, else one below the user's state."""
    if os.environ.get("BATCHHVD_ROOT"):
        return Path(os.environ["BATCHHVD_ROOT"]).expanduser().absolute()
    state = os.environ.get("XDG_STATE_HOME")
    return Path(state, "batchhvd") if state else Path.home() / ".local/state/batchhvd"


def resolved_root(root: Root | None) -> str:
    """Returns the absolute path of a root; None stands for the default one."""
    return str(Path(root).expanduser().absolute() if root else default_root())
