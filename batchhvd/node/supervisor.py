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
_BEAT = 0.2  # seconds between two looks at stop.json


class StoppedError(Exception):
    """The task was stopped before this node had started its ranks."""


class FolderGoneError(Exception):
    """The task's folder was removed: nothing waits for this node any more."""


class Supervisor:
    """Looks after the children of a node.

    Args:
        journal: the node's journal.
        watchdog: looks for ranks that stall.
        children: the node's children, shared with the watchdog.
        limit: the task's time limit in seconds, or None.
        doubt: seconds after which a failure counts as the rank's own; a batch system signals ranks and runner together.
        grace: seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        journal: Journal,
        watchdog: Watchdog,
        children: list[Child],
        *,
        limit: float | None,
        doubt: float,
        grace: float,
    ) -> None:
        self.journal, self.watchdog, self.children = journal, watchdog, children
        self.limit, self.doubt, self.grace = limit, doubt, grace
        self.started = time.monotonic()
        self.suspect: Child | None = None  # the first rank that failed, until it is certain that nobody ended it
        self._asked = ""  # the signal by which this runner was told to end
        self._stopping: float | None = None  # when the children were asked to end
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

    def take(self, child: Child) -> None:
        """Looks after a child from now on."""
        for pipe in child.pipes:
            self._selector.register(pipe.descriptor, selectors.EVENT_READ, (child, pipe))
        self.children.append(child)

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
            if self._stopping is None:
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
        late = time.monotonic() - self._excused > self.grace
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
            child.ended(status, self._stopping is not None)
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
        if child.exit and self._stopping is None and (self.suspect is None or _is_before(child, self.suspect)):
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

    def _heed(self) -> None:
        """Stops the task if this node has a reason to, and ends the children if the task was stopped."""
        now = time.monotonic()
        if self._stopping is None:
            self._judge(now)
            if self.journal.is_stopped:
                self._stopping = now
                self._end_children()
        elif now - self._stopping > self.grace:
            send(descendants(os.getpid()), signal.SIGKILL)

    def _judge(self, now: float) -> None:
        if self._asked:
            self.journal.fail(StopReason.NODE, f"the node was told to end ({self._asked})")
        elif self.limit is not None and now - self.started > self.limit:
            self.journal.fail(StopReason.TIME, f"the job ran longer than {self.limit:g} s")
        else:
            self._accuse()

    def _end_children(self) -> None:
        stop = self.journal.stop()
        if stop is not None and stop.get("stacks") and not self.journal.record["reason"]:
            self.watchdog.note_stacks(last_chance=False)  # another node stalled; what these ranks wait for explains why
        for child in self.children:
            child.signal_group(signal.SIGTERM)
            child.signal_group(signal.SIGCONT)


def _is_before(child: Child, other: Child) -> bool:
    """Whether a child rather than another one is why the ranks fail: it is not the victim, or it ended first."""
    return (child.is_victim, child.ended_at or 0.0) < (other.is_victim, other.ended_at or 0.0)
