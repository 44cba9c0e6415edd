"""Following a log file while a job writes it: every byte once, none twice, until the job has ended and all is read."""

from __future__ import annotations

import codecs
from collections.abc import Generator, Iterator
from typing import Protocol

from batchhvd.errors import AccessDeniedError, NotFoundError, ServiceError, UnavailableError, WaitTimeoutError
from batchhvd.wire.waiting import LONGEST, Clock, Pace, Report, SystemClock

ENDED = frozenset({"succeeded", "failed"})
"""The states that a job does not leave. Source: the published description's ExecutionState."""

WAIT = 20.0
"""Seconds for which a service that can hold a request open is asked to."""


class Log(Protocol):
    """One log file of one job, as ``LogStream`` needs it.

    A ``wait`` above 0 asks the service to hold an answer without news back for so many seconds. Whether it did is in
    ``held``, after each request.
    """

    held: bool

    def state(self, wait: float) -> str:
        """Returns the job's state; news is another state."""

    def describe(self) -> str:
        """Says how the job stands, for people; asks nobody."""

    def link(self, wait: float) -> str:
        """Returns an address of the file, or "" while there is no such file; news is another file, or the job's end."""

    def read(self, link: str, start: int, wait: float) -> Iterator[bytes]:
        """Yields what the file holds from byte ``start`` on; news is another byte, or the job's end."""

    def missing(self) -> Exception | None:
        """Returns the error for a file that the job, now over, never wrote; None where that is no surprise."""


class LogStream(Iterator[str]):
    """Text of a log file as it is written; ends when the job has ended and every byte was read.

    It outlives lost connections and a restart of the service. Text comes in pieces of any length, whole characters
    only; ``\\r`` is left as it is. ``cursor`` counts the bytes handed out: a new stream with that cursor goes on
    behind them, in another process too.

    Attributes:
        cursor: bytes of the file handed out so far.
    """

    def __init__(
        self,
        log: Log,
        *,
        cursor: int = 0,
        timeout: float | None = None,
        patience: float = 60.0,
        pace: Pace = Pace(),  # noqa: B008  # frozen
        report: Report | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Makes a stream; nothing is sent before the first text is asked for.

        Args:
            log: the file to follow.
            cursor: the byte to begin with.
            timeout: seconds that the whole may take, or None for a week.
            patience: seconds for which the service may be away.
            pace: pauses towards a service that does not hold requests open.
            report: is told what is waited for.
            clock: the clock to sleep by.
        """
        self.cursor = cursor
        self._log, self._pace, self._report = log, pace, report
        self._clock = clock or SystemClock()
        self._limit = LONGEST if timeout is None else timeout
        self._patience = patience
        self._started = self._clock.monotonic()
        self._answered: float | None = None
        self._quiet = 0  # looks in a row that brought nothing
        self._state = self._said = self._link = ""
        self._renewed = self._done = False
        # A stream may begin in the middle of a character: what cannot be read as UTF-8 becomes U+FFFD.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._position = cursor
        self._pieces = self._follow()

    def __next__(self) -> str:
        """Returns the next piece of text, waiting for it.

        Raises:
            WaitTimeoutError: the time is over.
            UnavailableError: the service stayed away.
            NotFoundError: the job is gone, or succeeded without writing such a file.
        """
        return next(self._pieces)

    def lines(self) -> Iterator[str]:
        """Yields whole lines without their end; of a line that ``\\r`` rewrote, what stood there last."""
        rest = ""
        for text in self:
            *whole, rest = (rest + text).split("\n")
            yield from map(_last_writing, whole)
        if rest:
            yield _last_writing(rest)

    def _follow(self) -> Iterator[str]:
        while not self._done:
            self._check_time()
            try:
                yield from self._step()
            except UnavailableError as error:
                self._lost(error)
            except (AccessDeniedError, NotFoundError) as error:
                self._renew(error)
        yield from self._decoded(b"", final=True)
        missing = None if self._link or self._position else self._log.missing()
        if missing is not None:
            raise missing

    def _step(self) -> Iterator[str]:
        """Asks the one thing that is worth asking next."""
        over = self._state in ENDED
        if self._state in ("", "queued"):
            self._look(hold=bool(self._state))
            return
        if self._link:
            news = yield from self._texts(self._hold(over))
        else:
            self._link = self._log.link(self._hold(over))
            news = bool(self._link)
        if over and not news:  # over before the last look, so that nothing can have come since
            self._done = True
        elif not news:
            self._look(hold=False)

    def _texts(self, wait: float) -> Generator[str, None, bool]:
        """Yields what is new as text and returns whether anything was."""
        before = self._position
        for data in self._log.read(self._link, self._position, wait):
            self._heard()
            yield from self._decoded(data)
        return self._position > before

    def _decoded(self, data: bytes, final: bool = False) -> Iterator[str]:
        self._position += len(data)
        text = self._decoder.decode(data, final)
        self.cursor = self._position - len(self._decoder.getstate()[0])
        if text:
            yield text

    def _look(self, *, hold: bool) -> None:
        """Looks how the job stands, with a pause where no request was held open."""
        if self._state and not hold and not self._log.held:
            self._pause()
        self._state = self._log.state(self._hold(not hold))
        self._heard(news=False)
        self._say(self._log.describe())
        if hold and not self._log.held:
            self._pause()

    def _hold(self, over: bool) -> float:
        return 0.0 if over else max(0.0, min(WAIT, self._left()))

    def _heard(self, news: bool = True) -> None:
        self._answered = self._clock.monotonic()
        if news:
            self._quiet, self._renewed = 0, False

    def _pause(self) -> None:
        self._quiet += 1
        self._clock.sleep(max(0.0, min(self._pace.pause(self._quiet), self._left())))

    def _renew(self, error: ServiceError) -> None:
        """Forgets a link that is refused, since links expire; a second refusal in a row is the caller's to know."""
        if self._renewed or not self._link:
            raise error
        self._link, self._renewed = "", True

    def _lost(self, error: UnavailableError) -> None:
        """Lives through a lost connection, for as long as ``patience`` says; the first try again is at once."""
        if self._answered is None or self._clock.monotonic() - self._answered > self._patience:
            raise error
        self._say("the service does not answer")
        if self._quiet:
            self._pause()
        self._quiet = max(self._quiet, 1)

    def _left(self) -> float:
        return self._limit - (self._clock.monotonic() - self._started)

    def _check_time(self) -> None:
        if self._left() <= 0:
            waited = self._limit
            raise WaitTimeoutError(
                f"followed the log for {waited:.0f} s, and the job has not ended: {self._log.describe()}. "
                f"Go on with stream(cursor={self.cursor})",
                last_state=self._log.describe(),
                waited=waited,
            )

    def _say(self, line: str) -> None:
        if self._report is not None and line != self._said:
            self._report(line)
        self._said = line


def _last_writing(line: str) -> str:
    """What a terminal would show of a line; a longer writing's end that a shorter one left standing is dropped."""
    return line.removesuffix("\r").rpartition("\r")[2]
