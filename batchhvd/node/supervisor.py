"""The loop of a node's runner: it copies the children's output, records how they end, and ends them when asked to."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time

from batchhvd.node.folder.state import StopReason
from batchhvd.node.output import PARTIAL
from batchhvd.node.processes import descendants, in_session, leave_to_ranks, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from batchhvd.node.child import Child
    from batchhvd.node.journal import Journal
    from batchhvd.node.output import OutputPipe
    from batchhvd.node.watchdog import Watchdog

GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL, if the task does not say."""
_VICTIM = 2.0  # seconds in which the rank is found that others have lost, perhaps by another node
_SOON = 2.0  # seconds in which the batch system's own SIGTERM comes, if another node or a person ends the job
_SAME = 1.0  # seconds between two signals that are one: a runner's guard passes its own on
_BY_SYSTEM = (StopReason.CANCELLED, StopReason.NODE)
_BEAT = 0.2  # seconds between two looks at stop.json


class StoppedError(Exception):
    """The task was stopped before this node had started its ranks."""


class FolderGoneError(Exception):
    """The task's folder was removed: nothing waits for this node any more."""


class Farewell:
    """When the ranks of a node are asked to end, and when they are killed.

    A batch system that ends a job sends SIGTERM to all its processes at once: the ranks have got it when their runner
    gets it, and a second one would make them save twice. If a job is ended on another node, or by a command, the batch
    system's SIGTERM is about to come.

    Args:
        grace: seconds between SIGTERM and SIGKILL.
        notice: seconds between SIGTERM and the end, if the batch system takes the node away for another job.
        shared: whether the batch system sends its SIGTERM to the ranks too.
    """

    def __init__(self, grace: float, notice: float, shared: bool) -> None:
        self.grace, self.notice, self.shared = grace, notice, shared
        self.asked: float | None = None  # when this runner got SIGTERM
        self._again: float | None = None  # when it got another one, as at the end of a notice
        self.begun: float | None = None  # when it was clear that this node ends
        self._done = False

    def ask(self) -> None:
        """Notes a SIGTERM of the batch system."""
        now = time.monotonic()
        if self.asked is None:
            self.asked = now
        elif now - self.asked > _SAME:
            self._again = self._again or now

    def is_due(self, now: float, reason: str) -> bool:
        """Says once that the ranks are to be sent SIGTERM.

        Args:
            now: the time, monotonic.
            reason: why the task was stopped, a ``StopReason``.
        """
        if self.begun is None or self._done:
            return False
        waits = self.shared and reason in _BY_SYSTEM and now - self.begun < _SOON
        self._done = not waits or self.asked is not None
        return self._done and not self.has_come

    @property
    def has_come(self) -> bool:
        """Whether the ranks that were there have got the batch system's SIGTERM."""
        return self.shared and self.asked is not None

    def is_late(self, now: float, reason: str) -> bool:
        """Says whether the ranks have had their time."""
        if self.begun is None:
            return False
        if self._again is not None:
            return now - self._again > self.grace
        taken = self.asked is not None and reason == StopReason.NODE  # and not ended by a person
        return now - self.begun > (max(self.grace, self.notice) if taken else self.grace)


class Supervisor:
    """Looks after the children of a node.

    Args:
        journal: the node's journal.
        watchdog: looks for ranks that stall.
        children: the node's children, shared with the watchdog.
        limit: the task's time limit in seconds, or None.
        doubt: seconds after which a failure counts as the rank's own; a batch system signals ranks and runner together.
        farewell: when the children are asked to end, and when they are killed.
    """

    def __init__(
        self,
        journal: Journal,
        watchdog: Watchdog,
        children: list[Child],
        *,
        limit: float | None,
        doubt: float,
        farewell: Farewell,
    ) -> None:
        self.journal, self.watchdog, self.children = journal, watchdog, children
        self.limit, self.doubt, self.farewell = limit, doubt, farewell
        self.started = time.monotonic()
        self.suspect: Child | None = None  # the first rank that failed, until it is certain that nobody ended it
        self._asked = ""  # the signal by which this runner was told to end
        self._taken: dict[int, float] = {}  # when each child was started
        self._excused: float | None = None  # when those were asked to end that would never do so by themselves

    def listen(self) -> None:
        """Lets signals interrupt the loop's waiting."""
        self._selector = selectors.DefaultSelector()
        self._bell, self._ring = socket.socketpair()
        for end in (self._bell, self._ring):
            end.setblocking(False)
        signal.set_wakeup_fd(self._ring.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        leave_to_ranks()
        self._selector.register(self._bell, selectors.EVENT_READ, None)

    def _ask(self, number: int, _frame: object) -> None:
        self._asked = signal.Signals(number).name
        if number == signal.SIGTERM:
            self.farewell.ask()

    def take(self, child: Child) -> None:
        """Looks after a child from now on."""
        for pipe in child.pipes:
            self._selector.register(pipe.descriptor, selectors.EVENT_READ, (child, pipe))
        self.children.append(child)
        self._taken[child.pid] = time.monotonic()

    def attend(self, done: Callable[[], bool]) -> None:
        """Copies output, records how children end, and obeys the stop file, until ``done()``.

        Raises:
            FolderGoneError: the task's folder was removed.
        """
        while not done():
            if not (self.journal.folder / "task.json").exists():
                raise FolderGoneError
            waits = any(pipe.pending for child in self.children for pipe in child.pipes) or self.suspect is not None
            for key, _ in self._selector.select(PARTIAL / 2 if waits else _BEAT):
                self._arrived(key)
            self._reap()
            self._heed()
            now = time.monotonic()
            if not self._stopping:
                self.watchdog.look(now)
            for child in self.children:
                for pipe in child.pipes:
                    pipe.flush(now)

    def attend_or_stop(self, done: Callable[[], bool]) -> None:
        """Does the same, and gives up if the task is stopped.

        Raises:
            StoppedError: the task was stopped before that.
            FolderGoneError: the task's folder was removed.
        """
        self.attend(lambda: self.journal.is_stopped or done())
        if self.journal.is_stopped:
            raise StoppedError

    def excuse(self, children: list[Child]) -> None:
        """Ends children whose work is done, which is no failure of theirs; may be repeated."""
        self._excused = self._excused or time.monotonic()
        late = time.monotonic() - self._excused > self.farewell.grace
        for child in children:
            if late or not child.excused:
                child.excused = True
                child.signal_group(signal.SIGKILL if late else signal.SIGTERM)

    def is_sure(self, child: Child) -> bool:
        """Whether it is certain why a child has ended: by itself, unless this node is just being told to end."""
        doubt = max(self.doubt, _VICTIM) if child.is_victim else self.doubt
        return child.exit == 0 or child.seconds_over >= doubt or self.journal.is_stopped

    # -- output --

    def _arrived(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            with contextlib.suppress(BlockingIOError):
                self._bell.recv(4096)
            return
        child, pipe = key.data
        if not pipe.read(time.monotonic()):
            self._close(child, pipe)

    def _close(self, child: Child, pipe: OutputPipe) -> None:
        self._selector.unregister(pipe.descriptor)
        child.pipes.remove(pipe)
        if child.is_over:
            self._over(child)

    # -- ends --

    def _reap(self) -> None:
        by_pid = {child.pid: child for child in self.children}
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self._ended(by_pid.get(found[0]), found[1])
        for child in self.children:
            if child.pipes and child.seconds_over > 1:
                self._cut(child)

    def _ended(self, child: Child | None, status: int) -> None:
        if child is not None:  # otherwise an orphan that this process has adopted
            child.ended(status, self._stopping)
            if child.is_over:
                self._over(child)

    def _cut(self, child: Child) -> None:
        """Ends what a rank has left running in its session, which keeps its output open."""
        send(in_session(child.pid, os.getpid()), signal.SIGKILL)
        if child.seconds_over > 1.5:  # what is left has a session of its own: stop listening
            for pipe in list(child.pipes):
                pipe.drain(time.monotonic())
                self._close(child, pipe)

    def _over(self, child: Child) -> None:
        child.close()
        if child.rank < 0:
            return
        self.journal.note(f"rank {child.rank} {child.how}")
        if child.exit and not self._stopping and (self.suspect is None or _is_before(child, self.suspect)):
            self.suspect = child
        self.journal.save()

    def _accuse(self) -> None:
        """Stops the task because of the first rank that failed, once it is certain that this was its own failure."""
        child = self.suspect
        if child is None or not self.is_sure(child):
            return
        if any(other.exit and not other.is_over and _is_before(other, child) for other in self.children):
            return  # it failed first, and its output is still read
        self.suspect = None
        reason = StopReason.MEMORY if child.record["memory"] else StopReason.RANK
        error = f"rank {child.rank} {child.how}"
        self.journal.fail(reason, error, rank=child.rank, code=child.exit, tail=child.record["tail"])

    # -- stopping --

    @property
    def _stopping(self) -> bool:
        """Whether this node ends."""
        return self.farewell.begun is not None

    def _heed(self) -> None:
        """Stops the task if this node has a reason to, and ends the children if the task was stopped."""
        now = time.monotonic()
        if not self._stopping:
            self._judge(now)
            if self.journal.is_stopped:
                self.farewell.begun = now
        stop = self.journal.stop() if self._stopping else None
        if stop is None:
            return
        if self.farewell.is_due(now, stop["reason"]):
            self._end(self.children)
        elif self.farewell.has_come:
            self._end(self._late_comers())
        if self.farewell.is_late(now, stop["reason"]):
            send(descendants(os.getpid()), signal.SIGKILL)

    def _judge(self, now: float) -> None:
        if self._asked:
            self.journal.fail(StopReason.NODE, f"the node was told to end ({self._asked})")
        elif self.limit is not None and now - self.started > self.limit:
            self.journal.fail(StopReason.TIME, f"the job ran longer than {self.limit:g} s")
        else:
            self._accuse()

    def _late_comers(self) -> list[Child]:
        """Returns the children that were started after the batch system's signal, each once."""
        asked = self.farewell.asked or 0.0
        late = [child for child in self.children if self._taken.get(child.pid, 0.0) > asked]
        for child in late:
            del self._taken[child.pid]
        return late

    def _end(self, children: list[Child]) -> None:
        stop = self.journal.stop()
        if children and stop is not None and stop.get("stacks") and not self.journal.record["reason"]:
            self.watchdog.note_stacks(last_chance=False)  # another node stalled; what these ranks wait for explains why
        for child in children:
            child.signal_group(signal.SIGTERM)
            child.signal_group(signal.SIGCONT)


def _is_before(child: Child, other: Child) -> bool:
    """Whether a child rather than another one is why the ranks fail: it is not the victim, or it ended first."""
    return (child.is_victim, child.ended_at or 0.0) < (other.is_victim, other.ended_at or 0.0)
