"""The error tree, and the one place where the Azure packages' errors become it."""

import inspect
import json
import pickle
import re

import pytest
import requests
from azure.core import exceptions as azure
from azure.identity import CredentialUnavailableError

from batchhvd import errors
from batchhvd.errors import (
    AccessDeniedError,
    BadRequestError,
    ConflictError,
    NotFoundError,
    ServiceError,
    ServiceRetiredError,
    UnavailableError,
)
from batchhvd.wire.translation import translate


class Answer:
    """An HTTP answer, as much of it as the Azure packages' errors read."""

    def __init__(self, status: int, body: str = "", **headers: str) -> None:
        self.status_code, self.reason, self.body = status, "reason", body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.request = "request"

    def text(self) -> str:
        return self.body


def refusal(status: int, code: str, message: str = "The message.", **more: str) -> azure.HttpResponseError:
    body = {"error": {"code": code, "message": message, "target": more.pop("target", "")}}
    return azure.HttpResponseError(response=Answer(status, json.dumps(body), **more))


# What each error of azure-core becomes where no status says it better.
EXPECTED = {
    "AzureError": ServiceError,
    "ClientAuthenticationError": AccessDeniedError,
    "DecodeError": ServiceError,
    "DeserializationError": ServiceError,
    "HttpResponseError": ServiceError,
    "IncompleteReadError": UnavailableError,
    "ODataV4Error": ServiceError,
    "ResourceExistsError": ConflictError,
    "ResourceModifiedError": ConflictError,
    "ResourceNotFoundError": NotFoundError,
    "ResourceNotModifiedError": ServiceError,
    "ResponseNotReadError": ServiceError,
    "SerializationError": BadRequestError,
    "ServiceRequestError": UnavailableError,
    "ServiceRequestTimeoutError": UnavailableError,
    "ServiceResponseError": UnavailableError,
    "ServiceResponseTimeoutError": UnavailableError,
    "StreamClosedError": ServiceError,
    "StreamConsumedError": ServiceError,
    "TooManyRedirectsError": ServiceError,
}


def classes(module: object) -> dict[str, type[Exception]]:
    found = inspect.getmembers(module, lambda item: inspect.isclass(item) and issubclass(item, Exception))
    return {name: item for name, item in found if item.__module__ == getattr(module, "__name__", "")}


def test_every_error_of_azure_core_is_mapped() -> None:
    assert set(classes(azure)) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_becomes(name: str) -> None:
    kind = getattr(azure, name)
    takes_answer = name in ("ODataV4Error", "StreamClosedError", "StreamConsumedError", "ResponseNotReadError")
    error = kind(Answer(0)) if takes_answer else kind([]) if name == "TooManyRedirectsError" else kind("it went wrong")
    found = translate(error, what="job 'x' cannot be read")
    assert type(found) is EXPECTED[name]
    assert str(found).startswith("job 'x' cannot be read: ")


def test_an_error_of_azure_identity_is_no_permission() -> None:
    assert type(translate(CredentialUnavailableError("no credential"))) is AccessDeniedError


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AccessDeniedError),
        (403, AccessDeniedError),
        (404, NotFoundError),
        (405, BadRequestError),
        (408, UnavailableError),
        (409, ConflictError),
        (412, ConflictError),
        (413, BadRequestError),
        (429, UnavailableError),
        (500, UnavailableError),
        (501, UnavailableError),
        (503, UnavailableError),
        (599, UnavailableError),
    ],
)
def test_the_status_decides(status: int, kind: type[ServiceError]) -> None:
    found = translate(refusal(status, "SomeCode"))
    assert type(found) is kind
    assert (found.status, found.code) == (status, "SomeCode")


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("The experiment 'x' could not be found.", "experiment"),
        ("Resource group 'x' could not be found; create it first.", "group"),
        ("The specified job x is not found.", "job"),
    ],
)
def test_the_command_lists_what_is_missing(said: str, command: str) -> None:
    found = translate(refusal(404, "ParentResourceNotFound", said), what="job 'x' cannot be read")
    assert f"`batchhvd {command} list` lists what there is" in found.shell


def test_evidence_is_in_the_attributes() -> None:
    error = refusal(400, "InvalidJob", "nodeCount is 0.", target="/properties/nodeCount", x_ms_request_id="r-1")
    found = translate(error, what="job 'x' cannot be created")
    assert isinstance(found, ServiceError)
    assert (found.target, found.request_id) == ("/properties/nodeCount", "r-1")
    assert str(found) == "job 'x' cannot be created: nodeCount is 0 (InvalidJob). Correct the request and send it again"


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("0.5", 0.5), ("", None), ("Fri, 27 Nov 2026", None)])
def test_retry_after(header: str, seconds: float | None) -> None:
    found = translate(refusal(503, "ServerBusy", Retry_After=header))
    assert isinstance(found, UnavailableError) and found.retry_after == seconds


@pytest.mark.parametrize("code", ["InvalidResourceNamespace", "MissingSubscriptionRegistration"])
def test_a_provider_that_azure_no_longer_knows_is_retired(code: str) -> None:
    found = translate(refusal(404, code, "The resource namespace 'Microsoft.BatchAI' is invalid."))
    assert type(found) is ServiceRetiredError
    assert "batchhvd.local()" in str(found)
    assert type(translate(refusal(404, code, "The resource namespace 'Microsoft.Other' is invalid."))) is NotFoundError


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (NotFoundError, 404, "ResourceNotFound"),
        (ConflictError, 409, "Conflict"),
        (BadRequestError, 400, "BadRequest"),
        (AccessDeniedError, 403, "AuthorizationFailed"),
        (UnavailableError, None, ""),
        (ServiceError, None, ""),
    ],
)
def test_a_class_carries_its_status_and_code(kind: type[ServiceError], status: int | None, code: str) -> None:
    plain, given = kind("x"), kind("x", status=401, code="Other")
    assert (plain.status, plain.code) == (status, code)
    assert (given.status, given.code) == (401, "Other")


def test_where_no_answer_came_there_is_no_status() -> None:
    assert translate(CredentialUnavailableError("no credential")).status is None  # type: ignore[attr-defined]


def test_our_own_errors_stay() -> None:
    error = NotFoundError("it is gone")
    assert translate(error, what="anything") is error


def test_a_read_that_broke_off_is_a_lost_connection() -> None:
    inside = azure.IncompleteReadError("cut")
    assert (
        type(translate(azure.HttpResponseError("interrupted", response=Answer(206), error=inside))) is UnavailableError
    )
    assert type(translate(json.JSONDecodeError("Expecting value", "", 0))) is UnavailableError
    assert type(translate(requests.ConnectionError("reset"))) is UnavailableError


def test_the_tree_at_the_head_is_the_tree() -> None:
    drawn = re.findall(r"^ {4}[│ ├└─]*([A-Z]\w+)(?: {2,}|$)", errors.__doc__ or "", re.MULTILINE)
    real = list(classes(errors))
    assert sorted(drawn) == sorted(real)


def test_every_error_has_one_base() -> None:
    for kind in classes(errors).values():
        assert issubclass(kind, errors.BatchHvdError)


def test_every_error_survives_a_pickle() -> None:
    made = [
        errors.UnavailableError("away", retry_after=3.0, status=503, code="Busy"),
        errors.JobFailedError("failed", exit_code=3, node="n", rank=1, tail=["a"], files=["f"], resource="id"),
        errors.SpecError("wrong", pointer="/a", remedy="mend", file="f", line=1, column=2),
        errors.WaitTimeoutError("late", last_state="queued", waited=2.0),
    ]
    for error in made:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_advice_is_given_once_in_both_renderings() -> None:
    told = "The cluster 'c' exists already with other settings (vmSize); delete it first, or use another name."
    found = translate(refusal(409, "ClusterAlreadyExists", told), what="cluster 'c' cannot be created")
    for text in (str(found), found.shell or str(found)):
        assert text.count("another name") == 1, text
    found = translate(refusal(409, "Busy", "The cluster 'c' is busy."), what="cluster 'c' cannot be created")
    assert "another name" in str(found) and "another name" in found.shell
