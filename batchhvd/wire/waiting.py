"""Waiting for a state: one function, growing pauses, and always a deadline.

One request that meets a busy service is retried inside the Azure pipeline (``connection.py``). This module is for the
other case: reading a resource repeatedly until it has reached a state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from attrs import define, field, frozen

from batchhvd.errors import UnavailableError, WaitTimeoutError

T = TypeVar("T")
Report = Callable[[str], None]
"""Takes one line that says what is waited for; called when the line changes."""

LONGEST = 7 * 24 * 3600.0
"""Seconds that a wait without a timeout may take. Source: the default of ``maxWallClockTime`` is seven days."""

_log = logging.getLogger("batchhvd")


class Clock(Protocol):
    """What a wait needs to know about time."""

    def monotonic(self) -> float:
        """Returns seconds that never go backwards."""

    def sleep(self, seconds: float) -> None:
        """Waits that many seconds."""


@frozen
class SystemClock:
    """The machine's own clock."""

    def monotonic(self) -> float:
        """Returns ``time.monotonic()``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)


@frozen
class Pace:
    """How long to pause between two looks.

    Attributes:
        first: seconds of the first pause.
        factor: each pause is this many times the one before.
        longest: seconds no pause is longer than.
    """

    first: float = 0.2
    factor: float = 1.5
    longest: float = 15.0

    def pause(self, number: int) -> float:
        """Returns the seconds to pause after look ``number`` (from 1)."""
        # The power is capped: after some 1,750 looks 1.5 ** n is no longer a float.
        return min(self.first * self.factor ** min(number - 1, 100), self.longest)


def wait_until(
    read: Callable[[], T],
    done: Callable[[T], bool],
    *,
    timeout: float | None = None,
    describe: Callable[[T], str] = str,
    what: str = "",
    clock: Clock | None = None,
    pace: Pace = Pace(),  # noqa: B008  # frozen
    patience: float = 60.0,
    report: Report | None = None,
) -> T:
    """Reads until it is done and returns what was read last.

    Args:
        read: looks once; what it raises ends the wait, but for ``UnavailableError`` (see ``patience``).
        done: whether the state is the one waited for; it raises if that state can no longer be reached.
        timeout: seconds from now, or None for ``LONGEST``; the last look happens when they are over.
        describe: the state in a few words, for the error and the progress line.
        what: the goal, such as ``"cluster 'nc6' to be ready"``.
        clock: the clock to sleep by; None for the machine's.
        pace: how the pauses grow.
        patience: seconds for which a service that answered before may be unreachable: a restart is tolerated.
        report: is called with each new progress line, or None.

    Raises:
        WaitTimeoutError: the time is over.
        UnavailableError: the service did not answer at all, or not for ``patience`` seconds.
    """
    clock = clock or SystemClock()
    limit = LONGEST if timeout is None else timeout
    watch = _Watch(clock, limit, patience, pace, what, describe, report)
    return watch.run(read, done)


@define
class _Watch:
    """One wait: when it began, what was seen, when it last could see at all."""

    clock: Clock
    limit: float
    patience: float
    pace: Pace
    what: str
    describe: Callable[..., str]
    report: Report | None
    started: float = field(init=False)
    value: Any = None
    seen: str | None = None
    line: str = ""
    answered: float | None = None

    def __attrs_post_init__(self) -> None:
        self.started = self.clock.monotonic()

    def run(self, read: Callable[[], T], done: Callable[[T], bool]) -> T:
        first = [self.look(read, done)]
        if not first[0]:
            self.repeat(lambda: first.pop() if first else self.look(read, done))
        value: T = self.value
        return value

    def repeat(self, look: Callable[[], bool]) -> None:
        # Imported here: tenacity takes as long as ten requests, and many waits end with their first look.
        from tenacity import RetryCallState, Retrying, retry_if_result

        def pause(state: RetryCallState) -> float:
            return max(0.0, min(self.pace.pause(state.attempt_number), self.limit - self.waited))

        def over(_: RetryCallState) -> bool:
            raise self.timeout()

        until = Retrying(
            retry=retry_if_result(lambda reached: not reached),
            wait=pause,
            stop=lambda _: self.waited >= self.limit,
            sleep=self.clock.sleep,
            retry_error_callback=over,
        )
        until(look)

    def look(self, read: Callable[[], T], done: Callable[[T], bool]) -> bool:
        """Looks once and says whether the goal is reached; a service that is briefly away means no."""
        try:
            value = read()
        except UnavailableError as error:
            if not self.forgives(error):
                raise
            return False
        self.value, self.answered = value, self.clock.monotonic()
        self.seen = self.describe(value)
        self.tell(f"waiting for {self.what or 'it'}: {self.seen}")
        return done(value)

    def tell(self, line: str) -> None:
        if line == self.line:
            return
        self.line = line
        _log.info("%s", line)
        if self.report is not None:
            self.report(line)

    def forgives(self, error: UnavailableError) -> bool:
        """Whether to go on: the service answered before, and has been away for less than ``patience`` seconds."""
        if self.answered is None or self.clock.monotonic() - self.answered >= self.patience:
            return False
        self.tell(f"waiting for {self.what or 'it'}: the service does not answer")
        return True

    @property
    def waited(self) -> float:
        return self.clock.monotonic() - self.started

    def timeout(self) -> WaitTimeoutError:
        goal = f" for {self.what}" if self.what else ""
        return WaitTimeoutError(
            f"waited {self.waited:.0f} s{goal}, last seen: {self.seen}. It continues by itself; wait again, with a "
            "longer timeout if it needs one",
            last_state=self.seen,
            waited=self.waited,
        )
