"""Every error that batchhvd raises, in one tree.

    BatchHvdError
    ├── ServiceError            the service rejected the request
    │   ├── NotFoundError       404: the resource or its parent does not exist
    │   ├── ConflictError       409: it exists already or is busy
    │   ├── BadRequestError     400 and other 4xx: the request is wrong
    │   ├── AccessDeniedError   401, 403: no token, a wrong key, an expired link
    │   ├── ServiceRetiredError  public Azure, which ended Batch AI in 2019
    │   └── UnavailableError    429, 5xx or no connection, after all retries
    ├── WaitTimeoutError        (also TimeoutError) the deadline passed
    ├── ResourceFailedError     a state from which the goal cannot be reached
    │   └── JobFailedError      a job failed or was terminated
    ├── RemoteError             what a function did on a node, with its traceback there
    ├── SpecError               (also ValueError) job.json, cluster.json or arguments
    ├── EngineError             an engine's command failed, or the engine does not support it
    │   ├── EngineBusyError     it cannot take a task at the moment; the same request may succeed later
    │   └── EngineMissingError  (also ImportError) the engine's programs are not installed
    └── HorovodMissingError     (also ImportError) training needs Horovod, which is not installed
        └── HorovodBrokenError  Horovod is not built for this Keras backend

A message says what happened, to which resource, and what to do next; the evidence is in attributes too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class BatchHvdError(Exception):
    """The base of every error of this package.

    Attributes:
        shell: the message with commands of ``batchhvd`` instead of calls in Python; "" if it has neither.
    """

    shell: str = ""

    def told(self, shell: str) -> Self:
        """Gives the error its message for the command line and returns it."""
        self.shell = shell
        return self


class ServiceError(BatchHvdError):
    """The service rejected the request.

    Each class carries the status and the code that it stands for; an error may have others.

    Attributes:
        status: HTTP status, or None if no answer came and the class stands for none.
        code: the service's error code, such as ``"ResourceNotFound"``.
        target: the field that is wrong, as a JSON pointer, or the resource's id.
        details: the service's own list of ``{"code", "message"}``.
        request_id: the service's id of the request, for its log.
    """

    status: int | None = None
    code: str = ""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        target: str = "",
        details: Sequence[Mapping[str, Any]] = (),
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.status = type(self).status if status is None else status
        self.code = type(self).code if code is None else code
        self.target = target
        self.details = tuple(details)
        self.request_id = request_id


class NotFoundError(ServiceError):
    """The resource or one of its parents does not exist."""

    status = 404
    code = "ResourceNotFound"


class ConflictError(ServiceError):
    """The resource exists already with other content, or is busy."""

    status = 409
    code = "Conflict"


class BadRequestError(ServiceError):
    """The request is wrong; sending it again does not help."""

    status = 400
    code = "BadRequest"


class AccessDeniedError(ServiceError):
    """The token, key or link was rejected."""

    status = 403
    code = "AuthorizationFailed"


class ServiceRetiredError(ServiceError):
    """The request went to public Azure, which ended Batch AI in 2019."""


class UnavailableError(ServiceError):
    """Nothing answered, or the service is overloaded, after all retries.

    Attributes:
        retry_after: seconds to wait as the service asks, or None.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, **evidence: Any) -> None:
        super().__init__(message, **evidence)
        self.retry_after = retry_after


class WaitTimeoutError(BatchHvdError, TimeoutError):
    """The deadline passed before the state was reached.

    Attributes:
        last_state: the last state seen.
        waited: seconds waited.
    """

    def __init__(self, message: str, *, last_state: object = None, waited: float = 0.0) -> None:
        super().__init__(message)
        self.last_state = last_state
        self.waited = waited


class ResourceFailedError(BatchHvdError):
    """A resource reached a state from which the goal cannot be reached.

    Attributes:
        resource: the resource's id.
        reasons: the service's reasons, one sentence each.
    """

    def __init__(self, message: str, *, resource: str = "", reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.resource = resource
        self.reasons = tuple(reasons)


class JobFailedError(ResourceFailedError):
    """A job failed or was terminated.

    Attributes:
        exit_code: the job's exit code (128 + n for signal n), or None if nothing ran.
        node: the name of the first node that failed, or "".
        rank: the first failing rank, or None.
        tail: the last lines of that rank's output.
        files: names of the log files with more details.
    """

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        node: str = "",
        rank: int | None = None,
        tail: Sequence[str] = (),
        files: Sequence[str] = (),
        **evidence: Any,
    ) -> None:
        super().__init__(message, **evidence)
        self.exit_code = exit_code
        self.node = node
        self.rank = rank
        self.tail = tuple(tail)
        self.files = tuple(files)


class RemoteError(BatchHvdError):
    """What a function did on a node: the cause of the exception that it raised, or an answer that cannot be read.

    Attributes:
        rank: the rank.
        traceback: the traceback on the node as text; "" if the function did not raise.
    """

    def __init__(self, message: str, *, rank: int = 0, traceback: str = "") -> None:
        super().__init__(message)
        self.rank, self.traceback = rank, traceback


class SpecError(BatchHvdError, ValueError):
    """A job file, a cluster file or an argument is wrong.

    Attributes:
        pointer: JSON pointer of the wrong value (RFC 6901), "" for the whole document.
        problem: what is wrong.
        remedy: what would be right.
        file, line, column: its position in a file (from 1), otherwise "" and 0.
    """

    def __init__(
        self,
        problem: str,
        *,
        pointer: str = "",
        remedy: str = "",
        file: str = "",
        line: int = 0,
        column: int = 0,
    ) -> None:
        place = f"{file}:{line}:{column}: " if file else ""
        at = f"{pointer}: " if pointer else ""
        super().__init__(f"{place}{at}{problem}" + (f"; {remedy}" if remedy else ""))
        self.problem = problem
        self.pointer = pointer
        self.remedy = remedy
        self.file = file
        self.line = line
        self.column = column


class EngineError(BatchHvdError):
    """An engine's command failed, or the engine does not support the request.

    Attributes:
        engine: the engine's name.
        command: the command that failed, or "" if none ran.
        exit_code: its exit code, or None.
        output: what it printed.
    """

    def __init__(
        self,
        message: str,
        *,
        engine: str = "",
        command: str = "",
        exit_code: int | None = None,
        output: str = "",
    ) -> None:
        super().__init__(message)
        self.engine = engine
        self.command = command
        self.exit_code = exit_code
        self.output = output


class EngineBusyError(EngineError):
    """The engine cannot take a task at the moment, or has not answered yet; the same request may succeed later.

    Attributes:
        again: after how many seconds to try again, or None to leave the pause to the caller.
    """

    def __init__(self, message: str, *, engine: str = "", command: str = "", again: float | None = None) -> None:
        super().__init__(message, engine=engine, command=command)
        self.again = again


class EngineMissingError(EngineError, ImportError):
    """The programs or packages of an engine are not installed; the message names them."""


class HorovodMissingError(BatchHvdError, ImportError):
    """Training on several ranks needs Horovod, which is not installed.

    Attributes:
        found: what was found instead.
        remedy: the one command that fixes it.
    """

    def __init__(self, message: str, *, found: str = "", remedy: str = "") -> None:
        super().__init__(message if remedy in message else f"{message}; {remedy}")
        self.found = found
        self.remedy = remedy


class HorovodBrokenError(HorovodMissingError):
    """Horovod is installed but not built for the Keras backend in use."""
