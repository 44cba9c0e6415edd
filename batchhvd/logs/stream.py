"""Following a log file while a job writes it: every byte exactly once, until the job has ended."""

from __future__ import annotations

import codecs
from collections.abc import Generator, Iterator
from typing import Protocol

from batchhvd.errors import AccessDeniedError, NotFoundError, ServiceError, UnavailableError, WaitTimeoutError
from batchhvd.wire.facts.states import ENDED
from batchhvd.wire.waiting import LONGEST, Clock, Pace, Report, SystemClock

WAIT = 20.0
"""Seconds for which a service that supports it is asked to hold a request open."""


class Log(Protocol):
    """One log file of one job, as ``LogStream`` needs it.

    A ``wait`` above 0 asks the service to hold back an answer without news for that many seconds. After each request,
    ``held`` says whether it did.
    """

    held: bool

    def state(self, wait: float) -> str:
        """Returns the job's state; a different state is news."""

    def describe(self) -> str:
        """Returns the state of the job in words, without sending a request."""

    def link(self, wait: float) -> str:
        """Returns the file's URL, or "" until the file exists; a new file or the end of the job is news."""

    def read(self, link: str, start: int, wait: float) -> Iterator[bytes]:
        """Yields the file's content from byte ``start`` on; another byte or the end of the job is news."""

    def missing(self) -> Exception | None:
        """Returns the error for a file that the job, now ended, never wrote; None if that is to be expected."""


class LogStream(Iterator[str]):
    r"""Text of a log file as it is written; ends when the job has ended and every byte was read.

    It survives lost connections and a restart of the service. Text comes in pieces of any length, made of whole
    characters; ``\r`` is kept. ``cursor`` counts the bytes returned so far: a new stream with that cursor continues
    after them, in another process too.

    Attributes:
        cursor: bytes of the file returned so far.
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
        """Creates a stream; sends nothing until the first text is requested.

        Args:
            log: the file to follow.
            cursor: the byte to start at.
            timeout: seconds until the stream gives up, or None for a week.
            patience: seconds for which the service may be unreachable.
            pace: pauses between requests to a service that does not hold them open.
            report: called with what the stream is waiting for.
            clock: the clock to use.
        """
        self.cursor = cursor
        self._log, self._pace, self._report = log, pace, report
        self._clock = clock or SystemClock()
        self._limit = LONGEST if timeout is None else timeout
        self._patience = patience
        self._started = self._clock.monotonic()
        self._answered: float | None = None
        self._quiet = 0  # consecutive requests without news
        self._state = self._said = self._link = ""
        self._renewed = self._done = False
        # A stream may start in the middle of a character; bytes that are not UTF-8 become U+FFFD.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._position = cursor
        self._pieces = self._follow()

    def __next__(self) -> str:
        """Returns the next piece of text, waiting for it.

        Raises:
            WaitTimeoutError: the timeout has passed.
            UnavailableError: the service stayed unreachable.
            NotFoundError: the job no longer exists, or it succeeded without writing the file.
        """
        return next(self._pieces)

    def lines(self) -> Iterator[str]:
        r"""Yields whole lines without their line ends; a line rewritten with ``\r`` is its last version."""
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
        """Sends the one request that can bring news next."""
        over = self._state in ENDED
        if self._state in ("", "queued"):
            self._look(hold=bool(self._state))
            return
        if self._link:
            news = yield from self._texts(self._hold(over))
        else:
            self._link = self._log.link(self._hold(over))
            news = bool(self._link)
        if over and not news:  # it had ended before the last read, so nothing can have been added since
            self._done = True
        elif not news:
            self._look(hold=False)

    def _texts(self, wait: float) -> Generator[str, None, bool]:
        """Yields new text and returns whether there was any."""
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
        """Reads the job's state, with a pause if no request was held open."""
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
        """Forgets a link that is refused, since links expire; raises the second refusal in a row."""
        if self._renewed or not self._link:
            raise error
        self._link, self._renewed = "", True

    def _lost(self, error: UnavailableError) -> None:
        """Tolerates a lost connection for ``patience`` seconds; the first retry is immediate."""
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
            waited, state = self._limit, self._log.describe()
            what = f"followed the log for {waited:.0f} s, and the job has not ended: {state}"
            raise WaitTimeoutError(
                f"{what}. Continue with stream(cursor={self.cursor})", last_state=state, waited=waited
            ).told(f"{what}. Continue with --cursor {self.cursor}")

    def _say(self, line: str) -> None:
        if self._report is not None and line != self._said:
            self._report(line)
        self._said = line


def _last_writing(line: str) -> str:
    """Returns the last version of a line; what remains on a terminal of a longer, earlier version is dropped."""
    return line.removesuffix("\r").rpartition("\r")[2]
