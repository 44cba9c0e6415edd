"""``python -m batchhvd.service --root DIR``: the local service."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen

from batchhvd.service import accounts, app, process
from batchhvd.service.store import Store

IN_USE = 3


def main(arguments: list[str] | None = None) -> int:
    """Runs the service until a signal or idleness ends it; returns the exit code."""
    options = _parser().parse_args(arguments)
    root = Path(options.root).expanduser().resolve()
    with process.lock(root) as held:
        if not held:
            return _point_to(root)
        process.log_to(root / "service.log")
        return Run(root, options).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m batchhvd.service", description="The local Batch AI service.")
    parser.add_argument("--root", required=True, help="the folder that holds all state")
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--engine", default="processes", help="what runs the jobs (default: processes)")
    parser.add_argument(
        "--idle", type=float, default=0, metavar="SECONDS", help="end when not needed for so long (0: never)"
    )
    return parser


def _point_to(root: Path) -> int:
    try:
        print((root / "endpoint").read_text(encoding="ascii").strip())
    except FileNotFoundError:
        print(f"another process holds {root} and does not answer yet", file=sys.stderr)
    return IN_USE


class Run:
    """One run of the service."""

    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self._root, self._options = root, options
        self._store = Store(root / "state.sqlite")
        self._wake, self._stop = threading.Event(), threading.Event()
        self._activity = process.Activity(self._busy)

    def run(self) -> int:
        """Serves until it is to end."""
        files = _files(self._root, self._store)
        application = app.build(
            self._store, self._root, process.token(self._root), self._wake.set, files, touch=self._activity.touch
        )
        listener = process.listen(self._options.port)
        scheduler = self._scheduler()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        try:
            asyncio.run(
                process.serve(
                    [(process.server(application), listener)],
                    lambda: process.announce(self._root, process.url(listener), self._options.engine),
                    self._ended,
                )
            )
        finally:
            (self._root / "endpoint").unlink(missing_ok=True)
            self._stop.set()
            self._wake.set()
            if scheduler:
                scheduler.join()
        return 0

    def _ended(self) -> bool:
        idle = self._options.idle
        return self._stop.is_set() or bool(idle and self._activity.idle() > idle)

    def _busy(self) -> bool:
        return any(
            job.document["properties"]["executionState"] not in ("succeeded", "failed")
            for job in self._store.list("jobs")
        )

    def _scheduler(self) -> threading.Thread | None:
        if importlib.util.find_spec("batchhvd.service.scheduler") is None:
            return None
        from batchhvd.engines.base import load

        scheduler = importlib.import_module("batchhvd.service.scheduler").Scheduler(
            self._store, self._root, load(self._options.engine)
        )
        thread = threading.Thread(
            target=process.schedule, args=(scheduler.tick, self._wake, self._stop, self._busy), name="scheduler"
        )
        thread.start()
        return thread


def _files(root: Path, store: Store) -> Any:
    if importlib.util.find_spec("batchhvd.service.files") is None:
        return _NoFiles(root)
    keys: Callable[[str], Any] = lambda account: accounts.keys_of(store, account)  # noqa: E731
    return importlib.import_module("batchhvd.service.files").Files(root, keys)


@frozen
class _NoFiles:
    root: Path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.responses import Response

        await Response(status_code=503)(scope, receive, send)

    def sas(self, account: str, share: str, path: str, permission: str, expiry: float) -> str:
        return ""

    def directory(self, account: str, share: str) -> Path | None:
        folder = self.root / "shares" / account / share
        return folder if folder.is_dir() else None


if __name__ == "__main__":
    sys.exit(main())
