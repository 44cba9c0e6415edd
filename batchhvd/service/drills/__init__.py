"""Fire drills: small faults injected into a running task on purpose, to see that it survives them as it should.

Each takes the task's folder (``find`` gives that of a job) and does to real processes what an accident would. They are
for the processes engine, whose nodes are processes of this machine.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from batchhvd.errors import EngineError, NotFoundError
from batchhvd.service.drills.throttle import Throttle
from batchhvd.service.storage.disk.sidecar import Sidecar
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Store


class _Process(TypedDict):
    pid: int


class _RankRecord(_Process):
    rank: int
    ended: float | None


class _NodeRecord(_Process):
    """What the runner of a node writes about it, as far as drills read it."""

    index: int
    state: str
    guard: _Process
    ranks: list[_RankRecord]


def find(root: Path, job: str) -> Path:
    """Returns the folder of a job's present attempt.

    Args:
        root: the service's folder.
        job: the job's resource id.

    Raises:
        NotFoundError: there is no such job, or it has not been started.
    """
    store = Store(root / "state.sqlite")
    try:
        record = store.get(job)
    finally:
        store.close()
    folder = StoredJob.of(record).folder if record else ""
    if not folder:
        raise NotFoundError(f"the job {job} does not exist or has not been started", target=job)
    return Path(folder)


def evict(folder: Path, node: int) -> None:
    """Evicts node ``node`` (counted from 0), as a power cut would: its runner and all that runs there die at once."""
    record = _record(folder, node)
    for pid in (record["guard"]["pid"], record["pid"], *_below(folder, node)):
        _send(pid, signal.SIGKILL)


def kill_runner(folder: Path, node: int) -> None:
    """Kills only the runner of a node."""
    _send(_record(folder, node)["pid"], signal.SIGKILL)


def kill_rank(folder: Path, rank: int, number: int = signal.SIGKILL) -> None:
    """Sends a signal to a rank, SIGKILL by default."""
    _send(_rank(folder, rank), number)


def freeze_rank(folder: Path, rank: int) -> None:
    """Suspends a rank without ending it, as a hanging disk would."""
    kill_rank(folder, rank, signal.SIGSTOP)


def thaw_rank(folder: Path, rank: int) -> None:
    """Lets a frozen rank go on."""
    kill_rank(folder, rank, signal.SIGCONT)


def break_mount(folder: Path, path: str) -> None:
    """Makes what is mounted at a relative path of the job's mount root unreachable."""
    link = folder / "mounts" / path
    aside = link.with_name(f".{link.name}.aside")
    link.rename(aside)
    link.symlink_to("/nonexistent")


def mend_mount(folder: Path, path: str) -> None:
    """Repairs a broken mount."""
    link = folder / "mounts" / path
    link.with_name(f".{link.name}.aside").replace(link)


def slow_mount(folder: Path, rate: float) -> Throttle:
    """Lets each process of the ranks read and write ``rate`` bytes a second and no more, for a ``with`` block (Linux).

    A process is frozen for as long as what it has just moved would have taken on so slow a share; this needs no rights
    but those of the processes' owner. It is not the mount itself that is slow: bytes to and from everything count, and
    those of files mapped into memory do not. The service and other clients of the share are as fast as ever. When the
    caller is killed within the block, ``thaw_rank`` lets a rank go on.

    Args:
        folder: the task's folder.
        rate: bytes a second.
    """
    return Throttle(lambda: [pid for record in _records(folder) for pid in _below(folder, record["index"])], rate)


def fill(folder: Path, size: int = 0) -> None:
    """Makes every write of the task's processes fail that would let a file grow beyond ``size`` bytes (Linux).

    This is how a full share looks, except for the error's name (EFBIG), and it harms no disk. For what
    comes over the wire see ``fill_share``.
    """
    for record in _records(folder):
        for pid in (record["pid"], *_below(folder, record["index"])):
            _limit(pid, size)


def fill_share(root: Path, account: str, share: str, size: int = 0) -> None:
    """Makes the file service refuse what would let a share's files have more than ``size`` bytes in all.

    It is a quota for uploads, in any file that is made, copied or made longer: 413 ``ShareSizeLimitReached``. The
    ranks of jobs write into the share's directory without the file service: for them see ``fill``.

    Args:
        root: the service's folder.
        account: the storage account's name.
        share: the share's name.
        size: bytes.

    Raises:
        NotFoundError: there is no such share.
    """
    _set_limit(root, account, share, size)


def free_share(root: Path, account: str, share: str) -> None:
    """Undoes ``fill_share``.

    Raises:
        NotFoundError: there is no such share.
    """
    _set_limit(root, account, share, None)


def stop_service(root: Path, number: int = signal.SIGTERM) -> None:
    """Ends the service of a root with a signal; its jobs go on."""
    try:
        pid = json.loads((root / "service.json").read_text(encoding="utf-8"))["pid"]
    except FileNotFoundError:
        raise NotFoundError(f"no service has run in {root}", target=str(root)) from None
    _send(pid, number)


def _set_limit(root: Path, account: str, share: str, size: int | None) -> None:
    place = root / "shares" / account / share
    if not place.is_dir():
        raise NotFoundError(f"account {account} has no share {share}", code="ShareNotFound", target=str(place))
    notes = Sidecar(root / "shares" / ".files" / "sidecar.sqlite")
    name, inode = f"{account}/{share}", place.stat().st_ino
    try:
        notes.put(name, "", inode, {**notes.get(name, "", inode), "limit": size})
    finally:
        notes.close()


def _record(folder: Path, node: int) -> _NodeRecord:
    try:
        record: _NodeRecord = json.loads((folder / f"node-{node}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EngineError(f"node {node} of {folder} has not begun", engine="processes") from None
    if record["state"] == "ended":
        raise EngineError(f"node {node} of {folder} has ended", engine="processes")
    return record


def _records(folder: Path) -> Iterator[_NodeRecord]:
    """Yields the records of the nodes that have begun and not ended."""
    for path in sorted(folder.glob("node-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["state"] != "ended":
            yield record


def _rank(folder: Path, rank: int) -> int:
    for record in _records(folder):
        for entry in record["ranks"]:
            if entry["rank"] == rank and entry["ended"] is None:
                return int(entry["pid"])
    raise EngineError(f"rank {rank} of {folder} is not running; job.explain() says how it ended", engine="processes")


def _below(folder: Path, node: int) -> Iterator[int]:
    """Yields the processes of a node's ranks: each carries the node's name in its environment."""
    mark = f"BATCHHVD_NODE={folder}:{node}".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                yield int(name)
        except OSError:
            continue  # it ended, or is another user's


def _limit(pid: int, size: int) -> None:
    try:
        hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    except ProcessLookupError:
        return  # it ended by itself


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself
