"""``python -m batchhvd.service --root DIR``: the local service."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sqlite3
import sys
import threading
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path

from batchhvd.engines import containers
from batchhvd.engines.fleet import Fleet
from batchhvd.engines.preparation_place import PreparationAdvice
from batchhvd.errors import EngineError
from batchhvd.service import app, entrance, process, root_folder, server
from batchhvd.service.blob_site import BlobSite
from batchhvd.service.blobs.app import Blobs
from batchhvd.service.files.app import Files
from batchhvd.service.http import limits
from batchhvd.service.http.door import Hall
from batchhvd.service.http.holding import Holding, job_over
from batchhvd.service.http.incoming import trust
from batchhvd.service.login import job_key
from batchhvd.service.login.desk import LoginDesk
from batchhvd.service.login.target import Ground, NodeTarget
from batchhvd.service.root_watch import RootWatch, WatchedTicks
from batchhvd.service.scheduler.task import Site
from batchhvd.service.scheduler.tick import Scheduler
from batchhvd.service.store import accounts, durable, recovery, trash
from batchhvd.service.store.records import Store
from batchhvd.wire.facts.containers import CHOICES, VARIABLE, Containers

log = logging.getLogger("batchhvd.service")
WRONG, IN_USE = 2, 3


def main(arguments: list[str] | None = None) -> int:
    """Runs the service until a signal or idleness ends it; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        root = Path(options.root).expanduser().resolve()
        return _renew(root) if options.new_token else _serve(root, options)
    except (EngineError, OSError, OverflowError, sqlite3.Error) as error:  # a port out of range overflows
        print(f"the service did not start: {error}", file=sys.stderr)
        return WRONG


def _serve(root: Path, options: argparse.Namespace) -> int:
    with root_folder.lock(root) as held:
        if held is None:
            return _point_to(root)
        process.log_to(root / "service.log")
        root_folder.forget(root)  # what a killed one left
        trash.empty(root)
        for line in recovery.recover(root) if options.recover else ():
            log.warning(line)
            print(line, file=sys.stderr)
        recovery.check(root)
        Service(root, options, held).run()
    return 0


def _renew(root: Path) -> int:
    root_folder.make(root)
    root_folder.renew(root)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m batchhvd.service", description="The local Batch AI service.")
    parser.add_argument("--root", required=True, metavar="DIR", help="the folder that holds all state")
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--engine", default="processes", help="what runs the jobs (default: processes)")
    parser.add_argument(
        "--option", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="a setting of the engine"
    )
    parser.add_argument(
        "--prepare",
        choices=("overlay", "host", "skip"),
        default="overlay",
        help="where job preparations run: in a layer over the machine's files (needs root), on the machine, nowhere",
    )
    parser.add_argument(
        "--allow-directory",
        type=_directory,
        action="append",
        default=[],
        metavar="PATH",
        help="a directory of this machine that jobs may mount (unmanagedFileSystems), with all below it",
    )
    parser.add_argument(
        "--containers",
        choices=CHOICES,
        default=os.environ.get(VARIABLE) or "auto",
        help=f"what runs the container images of jobs (default: ${VARIABLE}, or auto: the first engine that runs)",
    )
    parser.add_argument("--idle", type=float, default=0, metavar="SECONDS", help="end when nothing needed it so long")
    parser.add_argument(
        "--recover", action="store_true", help="put a damaged database aside, and begin with what can be read from it"
    )
    parser.add_argument("--tls", action="store_true", help="also speak https, and be the proxy for Azure's own names")
    parser.add_argument("--new-token", action="store_true", help="replace the root's token, and end")
    return parser


def _point_to(root: Path) -> int:
    try:
        print((root / "endpoint").read_text(encoding="ascii").strip())
    except FileNotFoundError:
        print(f"another process holds {root} and does not answer yet", file=sys.stderr)
    return IN_USE


class Service:
    """The service in this process: its servers, its scheduler, its end."""

    def __init__(self, root: Path, options: argparse.Namespace, watch: RootWatch) -> None:
        self._root, self._options, self._watch, self._started = root, options, watch, time.time()
        self._store = Store(root / "state.sqlite")
        self._keys = accounts.KeyBook(self._store)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._hall = Hall()
        self._activity = process.Activity(self._store.is_active)
        self._desk = LoginDesk(root, self._store, _login_options(options))
        self._containers = Containers(*containers.choose(options.containers))
        log.info("container images: %s", self._containers.engine or f"not run ({self._containers.why})")
        site = Site(
            sys.executable,
            options.prepare,
            str(root / "layers"),
            directories=options.allow_directory,
            programs=str(job_key.programs(root)),
            equip=job_key.Equipper(root, self._desk.ports) if options.engine == "processes" else None,
            containers=self._containers,
        )
        self._engine = engine = Fleet(options.engine, dict(options.option), root / "engines.json")
        self._scheduler = Scheduler(self._store, root, engine, site=site)
        self._thread = threading.Thread(
            target=process.schedule,
            args=(WatchedTicks(self._scheduler, watch), self._wake, self._stop),
            name="scheduler",
        )

    def run(self) -> None:
        """Serves until a signal or idleness ends it; jobs go on without the service."""
        # The scheduler's thread gives way to requests after 1 ms instead of 5.
        sys.setswitchinterval(0.001)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        try:
            asyncio.run(self._serve())
        finally:
            root_folder.forget(self._root)
            self._desk.close()
            self._stop.set()
            self._wake.set()
            if self._thread.ident:
                self._thread.join()
            self._scheduler.close()

    async def _serve(self) -> None:
        listener, for_blobs = server.listen(self._options.port), server.listen(0)
        blobs = Blobs(self._root / "containers", self._keys, admitted=trust, problem=self._watch.problem)
        application = self._application(blobs, server.url(for_blobs))
        site = BlobSite(blobs, self._activity.touch, root_folder.RootSecret(self._root))
        servers = [(server.server(application, self._hall), listener), (server.server(site, self._hall), for_blobs)]
        async with AsyncExitStack() as proxies:
            if self._options.tls:
                servers.append(await self._secure(application, proxies))
            self._desk.resume()
            durable.replace(self._root / "endpoint-blobs", server.url(for_blobs) + "\n")
            self._thread.start()
            threading.Thread(target=self._reap, name="reaper", daemon=True).start()
            await server.serve(
                servers, lambda: self._announce(server.url(listener)), self._ended, proxies.pop_all().aclose
            )

    def _application(self, blobs: Blobs, blob_endpoint: str) -> Holding:
        here = self._options.engine == "processes"
        advice = PreparationAdvice(self._options.prepare, self._root / "layers", here)
        application = app.build(
            self._store,
            self._root,
            root_folder.RootSecret(self._root),
            self._wake.set,
            Files(
                self._root / "shares",
                self._keys,
                kept_days=lambda account: accounts.kept_days(self._store, account),
                sku=lambda account: accounts.sku(self._store, account),
                admitted=trust,
                problem=self._watch.problem,
            ),
            touch=self._activity.touch,
            directories=self._options.allow_directory,
            problem=self._watch.problem,
            logins=self._desk.ports,
            preparation=lambda: advice.text,
            blobs=(blobs, blob_endpoint),
            containers=self._containers,
            ways=entrance.Ways(self._engine.entrance, self._node_entrance),
        )
        return Holding(application, ended=job_over(self._store), closing=self._stop.is_set)

    def _node_entrance(self, cluster: str, node: str, *, terminal: bool) -> list[str]:
        ground = Ground(self._root, self._store, self._options.engine, self._options.allow_directory)
        return NodeTarget(ground, cluster.lower(), node).entrance(terminal=terminal)

    async def _secure(self, application: Holding, proxies: AsyncExitStack) -> tuple[server.Server, server.Socket]:
        from batchhvd.service import tls  # its packages take as long to load as all the rest, and few need it

        identity, listener = tls.identity(self._root), server.listen(0)
        proxy = tls.Proxy(listener.getsockname()[1])
        front = server.listen(0)
        proxies.push_async_callback(proxy.close)
        proxies.enter_context(closing(await asyncio.start_server(proxy, sock=front, limit=limits.HEAD_BYTES)))
        durable.replace(self._root / "endpoint-tls", server.url(listener, "https") + "\n")
        durable.replace(self._root / "proxy", server.url(front) + "\n")
        options = {"ssl_certfile": str(identity.certificate), "ssl_keyfile": str(identity.key)}
        return server.server(application, self._hall, **options), listener

    def _announce(self, endpoint: str) -> None:
        chosen = self._options
        options = {
            "engine_options": dict(chosen.option),
            "prepare": chosen.prepare,
            "allow_directory": chosen.allow_directory,
            "containers": chosen.containers,
            "port": chosen.port,
            "idle": chosen.idle,
        }
        root_folder.announce(self._root, endpoint, chosen.engine, self._started, options)

    def _reap(self) -> None:
        """Removes the containers that nodes which were killed have left on this machine."""
        for name in containers.reap(self._containers.engine, str(self._root)):
            log.warning("the container %s of a node that was killed is removed", name)

    def _ended(self) -> bool:
        self._watch.look()
        idle = self._options.idle
        return not self._thread.is_alive() or self._stop.is_set() or bool(idle and self._activity.unneeded(idle))


def _login_options(options: argparse.Namespace) -> list[str]:
    return ["--engine", options.engine, *(f"--allow-directory={path}" for path in options.allow_directory)]


def _directory(text: str) -> str:
    path = Path(text).expanduser().absolute()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a directory")
    return str(path)


def _setting(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
