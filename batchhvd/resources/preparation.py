"""The preparation of a running job: whether it runs, and what it prints, as the node's own log and its files tell."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import define, field

from batchhvd.errors import ServiceError
from batchhvd.wire.facts.containers import NOT_RUN, PULLS, RUNS
from batchhvd.wire.facts.states import ENDED, JobState
from batchhvd.wire.waiting import Report, SystemClock

if TYPE_CHECKING:
    from batchhvd.resources.job import Job
    from batchhvd.resources.values.file_entry import FileEntry

_STREAMS = ("stdout-job_prep", "stderr-job_prep")
_SHOWN = 60  # characters of a command line in one line of text


def phase(job: Job) -> str | None:
    """Returns ``preparing: apt-get update …`` while the preparation of a job runs on its first node, else "".

    While the node pulls the job's image it is ``pulling the image IMAGE``. None means that nobody knows yet: the node
    has noted nothing.

    Sends two requests if the job runs and has a preparation or an image, none otherwise.
    """
    command, image = job.spec.preparation, job.spec.image
    if job.state != JobState.RUNNING or not (command or image):
        return ""
    try:
        files = list(job.files())
        if not (journal := _journal(files)):
            return None
        if image and not _has_image(journal, image):
            return f"pulling the image {image}" if PULLS in journal else None
        if not command:
            return ""
        if _has_ended(files):
            return ""
    except ServiceError:  # the phase is only a hint
        return None
    first = command.split("\n")[0].strip()
    return f"preparing: {first[:_SHOWN]}{' …' if first != command or len(first) > _SHOWN else ''}"


def follow(job: Job, report: Report | None = None) -> Iterator[str]:
    """Yields what the preparation on a job's first node prints, as it comes, until it has ended."""
    reader, clock, pace, look, told = _Reader(), job._session.clock or SystemClock(), job._connection.pace, 0, ""
    while True:
        ended = job.refresh().state in ENDED
        files = list(job.files()) if job.state != JobState.QUEUED else []
        ended = ended or _has_ended(files)  # read before the output, which is complete by then
        yield from reader.read(list(job.files()) if ended else files)
        if ended:
            return
        line = f"job {job.name!r} is {job.describe()}"
        if report and line != told:
            report(line)
        look, told = look + 1, line
        clock.sleep(min(pace.pause(look), 1.0 if job._connection.loopback else pace.longest))


@define
class _Reader:
    """How far the output of a preparation was read."""

    node: str = ""
    seen: dict[str, int] = field(factory=dict)
    decoders: dict[str, codecs.IncrementalDecoder] = field(factory=dict)

    def read(self, files: list[FileEntry]) -> Iterator[str]:
        """Yields what is new in the files of the first node that has any."""
        found = [file for file in files if file.name.startswith(_STREAMS)]
        self.node = self.node or (_node(found[0].name) if found else "")
        for file in found:
            if _node(file.name) == self.node and file.size > self.seen.get(file.name, 0):
                data = file.read()
                decoder = self.decoders.setdefault(file.name, codecs.getincrementaldecoder("utf-8")("replace"))
                text = decoder.decode(data[self.seen.get(file.name, 0) :])
                self.seen[file.name] = len(data)
                yield text


def _has_image(journal: str, image: str) -> bool:
    """Says whether a node's processes can start: their container runs, or they need none."""
    begun = any(line.partition(" ")[2].startswith("rank ") for line in journal.splitlines())
    return begun or RUNS.format(image=image) in journal or NOT_RUN in journal


def _node(name: str) -> str:
    return name.partition("job_prep")[2]  # of a job with one node, no name at all


def _journal(files: list[FileEntry]) -> str:
    """Returns what the first node has noted."""
    found = [file for file in files if file.name.startswith("execution") and file.name.endswith(".log")]
    return found[0].text() if found else ""


def _has_ended(files: list[FileEntry]) -> bool:
    """Says whether the first node's preparation has ended, as its journal tells; without one, whether a rank writes."""
    lines = [line.partition(" ")[2] for line in _journal(files).splitlines()]
    if not lines:
        return any(file.name == "stdout.txt" and file.size for file in files)
    starts = [number for number, line in enumerate(lines) if line.startswith("node ") and ", attempt " in line]
    return any(line.startswith(("preparation (", "rank ")) for line in lines[starts[-1] if starts else 0 :])
