"""What is known of a run: its specification, what its node and its training have recorded, and how it ended."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from attrs import field, frozen

from batchhvd.advice.plan import locate
from batchhvd.errors import BadRequestError, NotFoundError, SpecError
from batchhvd.spec.job import JobSpec

if TYPE_CHECKING:
    from typing import TypeAlias

    from batchhvd.resources.job import Job
    from batchhvd.resources.share import FileShare
    from batchhvd.resources.values.file_entry import FileEntry

    #: A record as JSON has it.
    Record: TypeAlias = Mapping[str, object]

NODE, TRAINING = "run.json", "run-training.json"
_PLACE = "batchhvd"  # the id under which our service lists the folder in which a job's logs lie


@frozen
class RunRecord:
    """What is known of a run.

    Attributes:
        name: the job's.
        spec: its specification.
        node: what its first node has recorded: ``code``, ``packages``, ``python``, ``machine``; empty for jobs without
            a script, and for those of other services.
        training: what the training has recorded: ``seed``, ``data``, ``packages``, ``weights``; empty for programs that
            do not use this package's ``hvd`` or trainer.
        results: state, exit code, and the last value of each metric.
    """

    name: str
    spec: JobSpec
    node: Record = field(repr=False)
    training: Record = field(repr=False)
    results: Record = field(repr=False)

    @property
    def code(self) -> Mapping[str, str]:
        """The SHA-256 of each file of its code, by the path below the script's folder."""
        return cast("Mapping[str, str]", self.node.get("code") or {})

    def part(self, name: str) -> Record:
        """Returns a part of the records that is a dictionary; what the training says counts before the node's word."""
        found = self.training.get(name) or self.node.get(name) or {}
        return cast("Record", found) if isinstance(found, Mapping) else {}


def read_record(job: Job) -> RunRecord:
    """Returns what is known of a run.

    Raises:
        NotFoundError: the job does not exist.
    """
    job.refresh()
    wanted = {file.name: file for file in _listed(job) if file.name in (NODE, TRAINING)}
    node, training = (_parsed(wanted[name].text()) if name in wanted else {} for name in (NODE, TRAINING))
    rows = job.metrics()
    last = {f"last {name}": value for name, value in (rows[-1] if rows else {}).items() if name not in _TIMES}
    results = {"state": str(job.state), "exit code": job.exit_code, **last}
    weights = {"weights": training["weights"]} if "weights" in training else {}
    return RunRecord(job.name, job.spec, node, training, {**results, **weights})


_TIMES = ("seconds", "images_per_second")


def _listed(job: Job) -> Iterator[FileEntry]:
    try:
        yield from job.files(_PLACE)
    except BadRequestError:  # another service: nothing was recorded
        return


def _parsed(text: str) -> Record:
    try:
        found = json.loads(text)
    except ValueError:  # it is being written
        return {}
    return found if isinstance(found, dict) else {}


class KeptCode:
    """The code of old runs, which the share of their logs keeps by digest.

    Args:
        job: the run.
        record: what is known of it.
    """

    def __init__(self, job: Job, record: RunRecord) -> None:
        self.job, self.record = job, record

    def read(self, digest: str) -> bytes:
        """Returns the content of a file of the run.

        Raises:
            NotFoundError: the content was not kept, or was removed since.
        """
        share, place = self._share(str(self.record.node.get("kept") or ""))
        found = _content(share, f"{place}/{digest}") if share is not None else None
        if found is None or hashlib.sha256(found).hexdigest() != digest:
            what = f"the code of job {self.record.name!r} with digest {digest[:12]} is no longer kept"
            raise NotFoundError(f"{what}: `batchhvd prune` removes what no job needs that is left", target=digest)
        return found

    def changed(self) -> list[str]:
        """Returns the files of the run whose present content is another one, or that are gone."""
        share, place = self._share(str(self.record.node.get("script") or ""))
        if share is None:
            return []
        folder = posixpath.dirname(place)
        return [
            name for name, digest in self.record.code.items() if _sha(share, posixpath.join(folder, name)) != digest
        ]

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yields each file of the run and its content then.

        Raises:
            NotFoundError: the content was not kept, or was removed since.
        """
        yield from ((name, self.read(digest)) for name, digest in self.record.code.items())

    def put(self, place: str) -> str:
        """Puts the code of the run into a folder of the share of its script, and returns the script's new path.

        Args:
            place: the folder, from the share's root.

        Raises:
            NotFoundError: the code was not kept, or was removed since.
            SpecError: the script is on no mount of the job.
        """
        path = str(self.record.node.get("script") or "")
        share, inside = self._share(path)
        if share is None:
            raise SpecError(f"the script {path!r} is on no share of the job", remedy="submit the job again by hand")
        for name, content in self.files():
            target = posixpath.join(place, name)
            share.create_directory(posixpath.dirname(target))
            share._put(target, content)
        return f"{path.removesuffix(inside)}{place}/{posixpath.basename(inside)}"

    def _share(self, path: str) -> tuple[FileShare | None, str]:
        mount, inside = locate(path, self.record.spec.mounts)
        if mount is None:
            return None, ""
        return self.job.group.storage_account(mount.account).share(mount.share), inside


def _content(share: FileShare, path: str) -> bytes | None:
    try:
        return b"".join(share._read_file(path))
    except NotFoundError:
        return None


def _sha(share: FileShare, path: str) -> str:
    found = _content(share, path)
    return "" if found is None else hashlib.sha256(found).hexdigest()
