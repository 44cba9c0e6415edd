"""Several engines as one: new tasks go to the one that was chosen, and each run stays with the one that started it.

Without this, a service that is started with another engine would tell running jobs that their ranks are gone, and could
not end them. A handle is the engine's name, an exclamation mark, and the engine's own handle; handles of earlier
versions have no name, and belong to the engine that was chosen.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from batchhvd.engines.base import Engine, Status, Task, TaskState, load
from batchhvd.errors import EngineError
from batchhvd.node.folder import durable

_MARK = "!"
_PAUSE = 30.0  # seconds until an engine that could not be loaded is tried again
_log = logging.getLogger(__name__)


class Fleet:
    """The engine that was chosen, and those that still have runs.

    Args:
        name: the engine of new tasks.
        settings: what its constructor takes.
        memory: a file that remembers the engines and their settings from one start to the next.

    Raises:
        EngineError: there is no such engine, or it has no such setting.
        EngineMissingError: its programs are not installed.
    """

    find: Callable[[str], str | None]
    submit_many: Callable[[Sequence[Task]], Mapping[str, str | EngineError]]

    def __init__(self, name: str, settings: Mapping[str, str], memory: Path) -> None:
        self._name, self._chosen = name, load(name, **settings)
        self._engines: dict[str, Engine] = {name: self._chosen}
        self._failed: dict[str, float] = {}  # when an engine could not be loaded
        self._settings = {**_remembered(memory), name: dict(settings)}
        durable.replace(memory, json.dumps(self._settings).encode(), mode=0o600)
        if hasattr(self._chosen, "find"):
            self.find = self._find
        if hasattr(self._chosen, "submit_many"):
            self.submit_many = self._submit_many

    @classmethod
    def remembered(cls, name: str, memory: Path) -> Fleet:
        """Returns the fleet of another process.

        Args:
            name: the engine of new tasks.
            memory: the file in which the other process remembers the engines and their settings.
        """
        return cls(name, _remembered(memory).get(name, {}), memory)

    def nodes(self) -> int:
        """Returns how many nodes the chosen engine can provide."""
        return self._chosen.nodes()

    def node_states(self) -> Mapping[str, str]:
        """Returns the machines of the chosen engine that accept no tasks, and why."""
        states: Mapping[str, str] = getattr(self._chosen, "node_states", dict)()
        return states

    def preview(self, task: Task) -> str:
        """Returns what ``submit`` would run."""
        return self._chosen.preview(task)

    def submit(self, task: Task) -> str:
        """Starts a task with the chosen engine; see ``Engine.submit``."""
        return self._named(self._chosen.submit(task))

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        """Returns the status of all runs; asks each engine once.

        A run whose engine cannot be used any more is told as running: nobody knows better, and the log says why.
        """
        groups: dict[str, list[str]] = {}
        for handle in handles:
            groups.setdefault(self._split(handle)[0], []).append(handle)
        found: dict[str, Status] = {}
        for name, mine in groups.items():
            engine = self._usable(name)
            if engine is None:
                found |= dict.fromkeys(mine, Status(state=TaskState.RUNNING))
                continue
            told = engine.status([self._split(handle)[1] for handle in mine])
            found |= {handle: told[self._split(handle)[1]] for handle in mine}
        return found

    def _usable(self, name: str) -> Engine | None:
        """Returns an engine, or None if it cannot be loaded; the log says so once, and it is tried again later."""
        now = time.monotonic()
        if now - self._failed.get(name, -_PAUSE) < _PAUSE:
            return None
        try:
            return self._engine(name)
        except EngineError as error:
            if name not in self._failed:
                _log.error("the runs of the engine %s cannot be followed until it can be used again: %s", name, error)
            self._failed[name] = now
            return None

    def entrance(self, handle: str, index: int, *, terminal: bool = False) -> list[str]:
        """Returns the words before a command line with which it runs in a node of a run; see ``Engine``.

        Raises:
            EngineError: the engine cannot be used any more, or its nodes cannot be entered.
        """
        name, own = self._split(handle)
        way: Callable[..., list[str]] | None = getattr(self._engine(name), "entrance", None)
        if way is None:
            raise EngineError(f"nodes of the engine {name!r} cannot be entered", engine=name)
        return way(own, index, terminal=terminal)

    def cancel(self, handle: str) -> None:
        """Ends a run with the engine that started it."""
        name, own = self._split(handle)
        self._engine(name).cancel(own)

    def _submit_many(self, tasks: Sequence[Task]) -> Mapping[str, str | EngineError]:
        found: Mapping[str, str | EngineError] = self._chosen.submit_many(tasks)  # type: ignore[attr-defined]
        return {key: self._named(told) if isinstance(told, str) else told for key, told in found.items()}

    def _find(self, folder: str) -> str | None:
        found: str | None = self._chosen.find(folder)  # type: ignore[attr-defined]
        return self._named(found) if found else None

    def _named(self, handle: str) -> str:
        return f"{self._name}{_MARK}{handle}"

    def _split(self, handle: str) -> tuple[str, str]:
        name, mark, own = handle.partition(_MARK)
        return (name, own) if mark and name in self._settings else (self._name, handle)

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            self._engines[name] = load(name, **self._settings[name])
        return self._engines[name]


def _remembered(memory: Path) -> dict[str, dict[str, str]]:
    with contextlib.suppress(FileNotFoundError):
        try:
            found = json.loads(memory.read_text(encoding="utf-8"))
            return {str(name): {str(key): str(value) for key, value in part.items()} for name, part in found.items()}
        except (ValueError, AttributeError) as error:
            raise EngineError(f"{memory} is damaged; delete it if no job is running: {error}") from error
    return {}
