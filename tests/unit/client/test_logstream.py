"""Following a log: every byte once, whole characters, an end only when there is nothing more to come."""

from collections.abc import Iterator
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from batchhvd.errors import AccessDeniedError, NotFoundError, UnavailableError, WaitTimeoutError
from batchhvd.logs.stream import LogStream
from batchhvd.wire.waiting import Pace

TEXT = "ä€😀 plain\r\n".encode() * 20


@define
class World:
    """A job, its log and a clock: what is written when is a list of (second, bytes), and the job ends at a second."""

    writes: list[tuple[float, bytes]]
    ends: float
    starts: float = 0.0
    holds: bool = False  # whether the service holds requests open
    now: float = 0.0
    held: bool = False
    cuts: list[int] = field(factory=list)  # how many bytes each read gives before its connection is lost
    away: list[float] = field(factory=list)  # until when the service is not there, at each request
    expired: set[str] = field(factory=set)
    result: str = "succeeded"
    asked: list[str] = field(factory=list)
    number: int = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def content(self) -> bytes:
        return b"".join(data for when, data in self.writes if when <= self.now)

    def state(self, wait: float) -> str:
        self._ask("state")
        self._hold(wait, [self.starts, self.ends])
        return "queued" if self.now < self.starts else "running" if self.now < self.ends else self.result

    def describe(self) -> str:
        return f"job 'j' is {'queued' if self.now < self.starts else 'on its way'}"

    def link(self, wait: float) -> str:
        self._ask("link")
        first = self.writes[0][0] if self.writes else float("inf")
        if self.now < first:
            self._hold(wait, [first, self.ends])
        if self.now < first:
            return ""
        self.number += 1
        return f"link-{self.number}"

    def read(self, link: str, start: int, wait: float) -> Iterator[bytes]:
        self._ask("read")
        if link in self.expired:
            raise AccessDeniedError("the link has expired")
        if not self.content()[start:]:
            self._hold(wait, [when for when, _ in self.writes] + [self.ends])
        data = self.content()[start:]
        if self.cuts and data:
            cut = self.cuts.pop(0)
            yield from ([data[:cut]] if cut else [])
            raise UnavailableError("the connection is lost")
        for at in range(0, len(data), 7):
            yield data[at : at + 7]

    def missing(self) -> Exception | None:
        return NotFoundError("no such file") if self.result == "succeeded" else None

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        self.held = False
        if self.away and self.now < self.away[0]:
            raise UnavailableError("nothing answers")

    def _hold(self, wait: float, moments: list[float]) -> None:
        if self.holds and wait:
            self.held = True
            self.now = min([self.now + wait, *(moment for moment in moments if moment > self.now)])


def follow(world: World, **options: Any) -> LogStream:
    return LogStream(world, clock=world, **options)


@pytest.mark.parametrize("holds", [False, True])
def test_reads_everything_and_ends(holds: bool) -> None:
    world = World([(2, b"one\n"), (3, b"two\n"), (50, b"three\n")], ends=60, starts=1, holds=holds)
    assert "".join(follow(world)) == "one\ntwo\nthree\n"
    assert 60 <= world.now < 76


@pytest.mark.parametrize("holds", [False, True])
def test_what_is_written_just_before_the_end_is_read(holds: bool) -> None:
    # The bytes come after the last look at the file and before the look at the state: the usual way to lose a tail.
    for late in (9.0, 9.99, 10.0):
        world = World([(0, b"begin\n"), (late, b"the last words\n")], ends=10.0, holds=holds)
        assert "".join(follow(world)) == "begin\nthe last words\n"


def test_holding_needs_a_request_in_twenty_seconds_only() -> None:
    world = World([(0, b"x")], ends=3600, holds=True)
    assert "".join(follow(world)) == "x"
    assert len(world.asked) < 2 * 3600 / 20 + 10


def test_without_holding_the_pauses_grow() -> None:
    world = World([(0, b"x")], ends=3600)
    assert "".join(follow(world, pace=Pace(longest=3.0))) == "x"
    assert len(world.asked) < 2 * 3600 / 3 + 50


def test_says_what_it_waits_for() -> None:
    lines: list[str] = []
    world = World([(31, b"x")], ends=40, starts=30, holds=True)
    assert "".join(follow(world, report=lines.append)) == "x"
    assert lines == ["job 'j' is queued", "job 'j' is on its way"]


@given(st.lists(st.integers(0, 40), max_size=60))
def test_cut_connections_lose_nothing(cuts: list[int]) -> None:
    world = World([(0, TEXT)], ends=1, cuts=cuts)
    pieces = list(follow(world))
    assert "".join(pieces).encode() == TEXT  # an error in mid-character would have made U+FFFD of it
    assert all(pieces)


@given(st.integers(1, 60))
def test_goes_on_from_any_cursor_that_it_gave(pieces: int) -> None:
    first = follow(World([(0, TEXT)], ends=1))
    text = "".join(piece for _, piece in zip(range(pieces), first, strict=False))
    assert TEXT[: first.cursor].decode() == text
    rest = "".join(follow(World([(0, TEXT)], ends=1), cursor=first.cursor))
    assert (text + rest).encode() == TEXT


def test_bytes_that_are_no_text_become_marks() -> None:
    assert "".join(follow(World([(0, b"a\xffb\xe2\x82")], ends=1))) == "a\ufffdb\ufffd"


def test_an_expired_link_is_renewed_but_a_refusal_is_an_error() -> None:
    world = World([(0, b"one\n"), (5, b"two\n")], ends=9, expired={"link-1"})
    assert "".join(follow(world)) == "one\ntwo\n"
    with pytest.raises(AccessDeniedError):
        list(follow(World([(0, b"x")], ends=9, expired={f"link-{n}" for n in range(100)})))


def test_lives_through_a_restart_but_not_through_an_end() -> None:
    world = World([(0, b"one\n"), (30, b"two\n")], ends=40)
    stream = follow(world)
    assert next(stream) == "one\n"
    world.away = [20.0]
    assert "".join(stream) == "two\n"
    world = World([(0, b"one\n")], ends=1000)
    stream = follow(world)
    assert next(stream) == "one\n"
    world.away = [900.0]
    with pytest.raises(UnavailableError):
        list(stream)
    assert 60 <= world.now < 80


def test_a_service_that_is_not_there_is_said_at_once() -> None:
    world = World([(0, b"one\n")], ends=10, away=[100.0])
    with pytest.raises(UnavailableError):
        next(follow(world))
    assert world.now == 0.0


def test_the_deadline_names_the_cursor() -> None:
    stream = follow(World([(0, b"abc")], ends=1000), timeout=30)
    with pytest.raises(WaitTimeoutError, match=r"stream\(cursor=3\)"):
        list(stream)


def test_a_file_that_never_came() -> None:
    with pytest.raises(NotFoundError):
        list(follow(World([], ends=5)))
    assert list(follow(World([], ends=5, result="failed"))) == []


def test_lines_show_what_a_terminal_would() -> None:
    text = b"one\r\ntwo 10%\rtwo 99%\rtwo 100%\nthree"
    world = World([(0, text[:9]), (1, text[9:])], ends=2)
    assert list(follow(world).lines()) == ["one", "two 100%", "three"]
