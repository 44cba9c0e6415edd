"""How long an engine that takes no tasks at the moment is left alone."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from batchhvd.errors import EngineBusyError

_FIRST, _MOST = 1.0, 30.0  # seconds


@define
class Backoff:
    """The pause between two tries; it doubles with each refusal until a task is taken.

    One pause holds for all jobs: what keeps an engine from taking one task (its controller is away, a limit is reached)
    mostly keeps it from taking any. The next try is with the job whose last try is the longest ago.

    Attributes:
        until: the time of the next try, in seconds since 1970.
        reason: why the engine took no task.
    """

    until: float = 0.0
    reason: str = ""
    _pause: float = _FIRST
    _tried: dict[str, float] = field(factory=dict)

    def holds(self, now: float) -> bool:
        """Says whether nothing should be tried yet; a clock that was set back ends the pause."""
        return 0 < self.until - now <= _MOST

    def refused(self, key: str, error: EngineBusyError, now: float) -> None:
        """Notes that the engine did not take the task of a job or node."""
        self.reason, self._tried[key] = str(error), now
        self.until = now + (self._pause if error.again is None else error.again)
        if error.again is None:
            self._pause = min(2 * self._pause, _MOST)

    def taken(self, key: str) -> None:
        """Notes that the engine took the task of a job or node."""
        self.until, self._pause = 0.0, _FIRST
        self._tried.pop(key, None)

    def in_turn(self, keys: Iterable[str]) -> list[str]:
        """Returns keys in the order in which they are tried."""
        return sorted(keys, key=lambda key: self._tried.get(key, 0.0))
