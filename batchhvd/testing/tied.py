"""``python -m batchhvd.testing.tied --root DIR``: the local service and its jobs, until its standard input ends.

The other end of the standard input is held by the process that needs the service. When that process ends, however it
does, the system closes it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from batchhvd.engines.base import ENDED
from batchhvd.engines.fleet import Fleet
from batchhvd.service import __main__ as service
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Store

_PATIENCE = 20.0  # seconds for jobs to end; the engine kills them after eight


def main(arguments: list[str]) -> int:
    """Serves until the standard input ends, then ends all jobs; returns the service's exit code."""
    threading.Thread(target=_watch, daemon=True).start()
    code = service.main(arguments)
    root = Path(arguments[arguments.index("--root") + 1])
    if (root / "engines.json").exists():
        _end_jobs(root)
    return code


def _watch() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _end_jobs(root: Path) -> None:
    store = Store(root / "state.sqlite")
    try:
        handles = [job.handle for job in map(StoredJob.of, store.active()) if job.handle]
    finally:
        store.close()
    fleet, deadline = Fleet("processes", {}, root / "engines.json"), time.monotonic() + _PATIENCE
    while handles and time.monotonic() < deadline:
        for handle in handles:
            fleet.cancel(handle)
        time.sleep(0.05)
        states = fleet.status(handles)
        handles = [handle for handle in handles if states[handle].state not in ENDED]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
