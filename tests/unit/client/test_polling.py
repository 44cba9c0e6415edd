"""Waiting: when it looks, when it ends, and what it says."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, field

from batchhvd.errors import NotFoundError, UnavailableError, WaitTimeoutError
from batchhvd.wire.waiting import LONGEST, Pace, wait_until


@define
class Clock:
    """A clock that moves only when somebody sleeps."""

    now: float = 1000.0
    pauses: list[float] = field(factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def script(*steps: object) -> Callable[[], Any]:
    """Returns a read that gives one step after the other, the last for ever; errors are raised."""
    left = list(steps)

    def read() -> object:
        step = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(step, Exception):
            raise step
        return step

    return read


def test_returns_at_once_what_is_done_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenacity", None)  # nor does it load what only repeated looks need
    clock = Clock()
    assert wait_until(script("steady"), "steady".__eq__, timeout=0, clock=clock) == "steady"
    assert clock.pauses == []


def test_pauses_grow_to_their_limit_and_never_pass_the_deadline() -> None:
    clock = Clock()
    with pytest.raises(WaitTimeoutError) as caught:
        wait_until(script("resizing"), "steady".__eq__, timeout=100, clock=clock, what="cluster 'c' to be ready")
    assert clock.pauses[:3] == pytest.approx([0.2, 0.3, 0.45])
    assert max(clock.pauses) == 15.0
    assert clock.now == pytest.approx(1100.0)
    assert caught.value.last_state == "resizing" and caught.value.waited == pytest.approx(100.0)
    assert "cluster 'c' to be ready" in str(caught.value) and "last seen: resizing" in str(caught.value)
    assert isinstance(caught.value, TimeoutError)


def test_looks_once_more_when_the_time_is_over() -> None:
    clock = Clock()
    read = lambda: "steady" if clock.now >= 1010.0 else "resizing"  # noqa: E731  # one line says it
    assert wait_until(read, "steady".__eq__, timeout=10, clock=clock) == "steady"


def test_without_a_timeout_the_deadline_is_a_week() -> None:
    clock = Clock()
    with pytest.raises(WaitTimeoutError):
        wait_until(script("queued"), "running".__eq__, clock=clock, pace=Pace(longest=10_000))
    assert clock.now == pytest.approx(1000 + LONGEST)


def test_a_state_without_way_back_raises_at_once() -> None:
    clock = Clock()

    def done(state: str) -> bool:
        if state == "failed":
            raise NotFoundError("the cluster failed")
        return state == "steady"

    with pytest.raises(NotFoundError):
        wait_until(script("resizing", "failed"), done, timeout=60, clock=clock)
    assert len(clock.pauses) == 1


def test_lives_through_a_restart_of_the_service() -> None:
    away = UnavailableError("no connection")
    clock = Clock()
    lines: list[str] = []
    read = script("resizing", away, away, "resizing", away, "steady")
    assert wait_until(read, "steady".__eq__, timeout=60, clock=clock, report=lines.append, what="it") == "steady"
    assert lines == [
        "waiting for it: resizing",
        "waiting for it: the service does not answer",
        "waiting for it: resizing",
        "waiting for it: the service does not answer",
        "waiting for it: steady",
    ]


def test_a_service_that_never_answered_or_stays_away_is_an_error() -> None:
    clock = Clock()
    with pytest.raises(UnavailableError):
        wait_until(script(UnavailableError("gone")), bool, timeout=600, clock=clock)
    assert clock.pauses == []
    with pytest.raises(UnavailableError):
        wait_until(script("", UnavailableError("gone")), bool, timeout=600, clock=clock, patience=30)
    assert 30 <= clock.now - 1000 < 60


def test_what_the_goal_raises_is_never_forgiven() -> None:
    def done(state: str) -> bool:
        if state == "b":
            raise UnavailableError("it will not come any more")
        return False

    clock = Clock()
    with pytest.raises(UnavailableError, match="not come"):
        wait_until(script("a", "b"), done, timeout=60, clock=clock)
    assert len(clock.pauses) == 1


def test_ctrl_c_ends_the_wait() -> None:
    class Interrupted(Clock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait_until(script("queued"), "running".__eq__, clock=Interrupted())


def test_a_very_long_wait_keeps_its_pause() -> None:
    assert Pace().pause(100_000) == 15.0
