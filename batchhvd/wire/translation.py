"""Errors of the Azure packages as errors of this package: the one place where the class is chosen."""

from __future__ import annotations

import re
from typing import Any

from batchhvd.errors import (
    AccessDeniedError,
    BadRequestError,
    BatchHvdError,
    ConflictError,
    NotFoundError,
    ServiceError,
    ServiceRetiredError,
    UnavailableError,
)


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
    then = remedy or ("" if ";" in answer.sentence() else _NEXT[kind])  # what follows a semicolon is advice already
    message = f"{said.rstrip('.')}. {then}" if then else said
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
    advised = ";" in answer.sentence() and kind is not NotFoundError
    other = shell or ("" if remedy or advised else _in_commands(kind, what, answer.sentence()))
    return found.told(f"{said.rstrip('.')}. {other}") if other else found.told(said if not remedy else "")


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
_NOUNS = {"group", "workspace", "experiment", "cluster", "job", "share", "storage"}
_PARENT = re.compile(r"(group|workspace|experiment|storage) (?:account )?'[^']*' could not be found")
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


def _in_commands(kind: type[ServiceError], what: str, said: str) -> str:
    """Returns what to do next in commands; "" if the service's own sentence is all that there is to say."""
    if kind is ServiceRetiredError:
        return _ON_THIS_MACHINE
    parent = _PARENT.search(said)  # what is missing may be what the resource lies in
    noun = parent[1] if parent else what.removeprefix("resource ").partition(" ")[0]
    if kind is NotFoundError and noun in _NOUNS:
        return f"`batchhvd {noun} list` lists what there is"
    return "" if kind in (BadRequestError, NotFoundError) else _NEXT[kind]


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
