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


def translate(error: Exception, *, what: str = "", remedy: str = "", shell: str = "") -> BatchHvdError:
    """Returns the error of this package that stands for an error of the Azure packages.

    The one place where the class is chosen: by the service's code, then the HTTP status, then the kind of failure.

    Args:
        error: what an Azure client raised; an error of this package comes back as it is.
        what: what was requested of which resource, such as ``"job 'cifar' cannot be read"``.
        remedy: what to do next, if the caller knows better than the class does.
        shell: the same in commands of ``batchhvd``.
    """
    if isinstance(error, BatchHvdError):
        return error
    answer = _Answer(error)
    kind = answer.kind()
    said = f"{what}: {answer.sentence()}" if what else answer.sentence()
    message = f"{said.rstrip('.')}. {remedy or _NEXT[kind]}"
    evidence: dict[str, Any] = {
        "code": answer.code,
        "target": answer.target,
        "details": answer.details,
        "request_id": answer.header("x-ms-request-id"),
    }
    if kind is UnavailableError:
        evidence["retry_after"] = answer.retry_after()
    found = kind(message, **evidence)
    found.status = answer.status  # also None: a class's own status would say that an answer came
    other = shell or (_ON_THIS_MACHINE if kind is ServiceRetiredError and not remedy else "")
    return found.told(f"{said.rstrip('.')}. {other}") if other else found


_NEXT: dict[type[ServiceError], str] = {
    ServiceError: "Look into the service's log for the reason, then send the request again",
    NotFoundError: "Check the name, or create the resource first",
    ConflictError: "Wait until it is free, delete it first, or use another name",
    BadRequestError: "Correct the request and send it again",
    AccessDeniedError: "Check the credential, key or link; ask for a new one if it has expired",
    ServiceRetiredError: (
        "Run the job on this machine with batchhvd.local(), or connect() to a service of your own; "
        "groups, storage accounts and file shares work there as before"
    ),
    UnavailableError: "Check that the service runs and can be reached, then try again",
}
_ON_THIS_MACHINE = "Run the job on this machine, without --endpoint, or give --endpoint a service of your own"
_BY_STATUS: dict[int, type[ServiceError]] = {
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: NotFoundError,
    408: UnavailableError,
    409: ConflictError,
    412: ConflictError,
    429: UnavailableError,
}
# What Resource Manager answers if it does not know the provider, or no longer does.
_UNKNOWN_PROVIDER = frozenset(
    {"invalidresourcenamespace", "missingsubscriptionregistration", "noregisteredproviderfound"}
)
_BY_NAME: dict[str, type[ServiceError]] = {
    "ClientAuthenticationError": AccessDeniedError,
    "JSONDecodeError": UnavailableError,  # the answer broke off
    "RequestException": UnavailableError,  # of requests: some reads in the storage package let it through
    "ServiceRequestError": UnavailableError,
    "ServiceResponseError": UnavailableError,
    "IncompleteReadError": UnavailableError,
    "ResourceNotFoundError": NotFoundError,
    "ResourceExistsError": ConflictError,
    "ResourceModifiedError": ConflictError,
    "SerializationError": BadRequestError,
}


class _Answer:
    """What the service said, read out of an exception of whichever Azure package."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.response = getattr(error, "response", None)
        self.status: int | None = getattr(error, "status_code", None)
        body = getattr(error, "error", None)  # azure.core.exceptions.ODataV4Format, for answers in JSON
        self.code = str(getattr(body, "code", None) or _text(getattr(error, "error_code", None)))
        self.target = str(getattr(body, "target", None) or "")
        self.details = [_detail(item) for item in getattr(body, "details", None) or ()]
        self.message = str(getattr(body, "message", None) or getattr(error, "message", None) or error)

    def kind(self) -> type[ServiceError]:
        if self.code.lower() in _UNKNOWN_PROVIDER and "batchai" in self.message.lower():
            return ServiceRetiredError
        if self.status in _BY_STATUS:
            return _BY_STATUS[self.status]
        # A read that broke off arrives as an answer (206) with the reason inside.
        for cause in (self.error, getattr(self.error, "inner_exception", None)):
            for ancestor in type(cause).__mro__:
                if ancestor.__name__ in _BY_NAME:
                    return _BY_NAME[ancestor.__name__]
        if self.status is not None and self.status >= 500:
            return UnavailableError
        return BadRequestError if self.status is not None and 400 <= self.status < 500 else ServiceError

    def sentence(self) -> str:
        # Storage puts the request's id and the time on further lines; they are attributes here.
        first = self.message.strip().splitlines()[0] if self.message.strip() else type(self.error).__name__
        return f"{first.rstrip('.')} ({self.code})" if self.code and self.code not in first else first

    def header(self, name: str) -> str:
        headers = getattr(self.response, "headers", None) or {}
        return str(headers.get(name, ""))

    def retry_after(self) -> float | None:
        try:
            return float(self.header("Retry-After"))
        except ValueError:  # absent, or a date, which is not needed here
            return None


def _text(code: object) -> str:
    return str(getattr(code, "value", code) or "")


def _detail(item: object) -> dict[str, Any]:
    return {"code": str(getattr(item, "code", "") or ""), "message": str(getattr(item, "message", "") or "")}
