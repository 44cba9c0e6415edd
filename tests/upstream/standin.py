"""A stand-in for ``devtools_testutils``, which Microsoft's tests import and their source archive does not have.

It gives the tests accounts of a service on this machine, by the hosts that Azure gives them. Nothing is recorded or
played back. What a test waits for by ``self.sleep`` passes on the service's clock alone.
"""

from __future__ import annotations

import functools
import inspect
import io
import logging
import math
import random
import sys
import types
import zlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from attrs import frozen

ACCOUNTS = {
    "storage_account": ("storagename", "Zmlyc3Qga2V5IG9mIHRoZSBzdGFuZGFyZCBhY2NvdW50IQ=="),
    "premium_storage_file_account": ("premiumname", "Zmlyc3Qga2V5IG9mIHRoZSBwcmVtaXVtIGFjY291bnQhIQ=="),
    "secondary_storage_account": ("secondaryname", "Zmlyc3Qga2V5IG9mIHRoZSBzZWNvbmQgYWNjb3VudCEhIQ=="),
    "premium_storage_account": ("premiumblobs", "Zmlyc3Qga2V5IG9mIHRoZSBwcmVtaXVtIGJsb2JzISEhIQ=="),
    "blob_storage_account": ("blobname", "Zmlyc3Qga2V5IG9mIHRoZSBhY2NvdW50IG9mIGJsb2JzIQ=="),
    "versioned_storage_account": ("versionedname", "Zmlyc3Qga2V5IG9mIHRoZSB2ZXJzaW9uZWQgYWNjb3VudA=="),
    "soft_delete_storage_account": ("softdeletename", "Zmlyc3Qga2V5IG9mIHRoZSBhY2NvdW50IG9mIHVuZGVsZQ=="),
}
# Microsoft runs this one by hand against an account of the billing model provisioned v2, under the usual name.
_PROVISIONED = ("test_provisioned_billing_v2",)
OAUTH = "OAuth: this service knows account keys and links, no tokens"
_FORMAT = "%(asctime)s %(name)-20s %(levelname)-5s %(message)s"
Test = Callable[..., Any]


def skus(test: str) -> dict[str, str]:
    """Returns the SKUs of the accounts of the kind FileStorage that a test gets, by account."""
    found = {ACCOUNTS["premium_storage_file_account"][0]: "Premium_LRS"}
    if test.partition("[")[0] in _PROVISIONED:
        found[ACCOUNTS["storage_account"][0]] = "StandardV2_LRS"
    return found


class Clock:
    """What the service takes for the time: the machine's, and ahead of it by what tests have waited."""

    ahead = 0.0

    @classmethod
    def sleep(cls, seconds: float) -> None:
        """Lets time pass on the service's clock."""
        cls.ahead += seconds


@frozen
class Secret:
    """A key as the tests take it."""

    secret: str


class EnvironmentVariableLoader:
    """Gives a test the names and keys of the accounts."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, test: Test) -> Test:
        """Returns the test with its accounts."""
        accounts: dict[str, Any] = {}
        for kind, (name, key) in ACCOUNTS.items():
            accounts |= {f"{kind}_name": name, f"{kind}_key": Secret(key)}
        return _with(test, accounts)


class ResponseCallback:
    """Changes the status of responses, as tests of retries want it.

    Args:
        status: the status that is changed.
        new_status: what it becomes.
    """

    def __init__(self, status: int | None = None, new_status: int | None = None) -> None:
        self._status, self._new, self._first, self.count = status, new_status, True, 0

    def override_first_status(self, response: Any) -> None:
        """Changes it once."""
        if self._first and response.http_response.status_code == self._status:
            response.http_response.status_code = self._new
            self._first = False

    def override_status(self, response: Any) -> None:
        """Changes it each time."""
        if response.http_response.status_code == self._status:
            response.http_response.status_code = self._new
            self.count += 1


class FakeTokenCredential:
    """A credential of OAuth, which this service does not know."""

    def get_token(self, *_: Any, **__: Any) -> Any:
        pytest.skip(OAUTH)


class RetryCounter:
    """Counts the attempts after the first one."""

    count = 0

    def simple_count(self, *_: Any, **__: Any) -> None:
        """Counts one."""
        self.count += 1


def recorded(test: Test) -> Test:
    """Returns the test, which is given the variables that a recording would have kept."""
    return _with(test, {"variables": {}})


def _with(test: Test, given: dict[str, Any]) -> Test:
    """Returns a test, of either kind, that is called with more arguments, if it takes any."""
    if not any(each.kind is each.VAR_KEYWORD for each in inspect.signature(test).parameters.values()):
        given = {}

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> Any:
        return test(*arguments, **{**given, **named})

    @functools.wraps(test)
    async def run_async(*arguments: Any, **named: Any) -> Any:
        return await test(*arguments, **{**given, **named})

    return run_async if inspect.iscoroutinefunction(test) else run


class RecordedTestCase:
    """The base of all test classes."""

    is_live = True
    sas_token: ClassVar[str]
    logger = logging.getLogger("azure.storage")

    @classmethod
    def setup_class(cls) -> None:
        cls.sas_token = sas_token()

    def setup_method(self, method: Any) -> None:
        self._name = getattr(method, "__name__", "test")
        self.configure_logging()

    def is_playback(self) -> bool:
        return False

    def sleep(self, seconds: float) -> None:
        Clock.sleep(seconds)

    def get_resource_name(self, prefix: str) -> str:
        """Returns a name that is the same whenever one test asks for it."""
        return f"{prefix}{zlib.crc32(self._name.encode()):08x}"

    def get_random_bytes(self, size: int) -> bytes:
        return b"a" * size

    def get_random_text_data(self, size: int) -> str:
        words, chance, text = ["hello", "world", "python"], random.Random(self._name), ""
        while len(text) < size:
            text += f" {chance.choice(words)}"
        return text

    def account_url(self, account: str, kind: str) -> str:
        return f"https://{account}.{kind}.core.windows.net"

    def connection_string(self, account: str, key: str) -> str:
        return f"DefaultEndpointsProtocol=https;AccountName={account};AccountKey={key};EndpointSuffix=core.windows.net"

    def get_credential(self, *_: Any, **__: Any) -> Any:
        pytest.skip(OAUTH)

    def get_settings_value(self, name: str) -> str:
        return f"no {name}"

    def generate_fake_sas_token(self) -> str:
        return sas_token()

    def generate_sas(self, function: Test, *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    def get_datetime_variable(self, variables: dict[str, str], name: str, when: datetime) -> datetime:
        return datetime.fromisoformat(variables.setdefault(name, when.isoformat()))

    def configure_logging(self) -> None:
        self.logger.handlers = []
        self.logger.setLevel(logging.WARNING)

    def enable_logging(self) -> None:
        self.logger.setLevel(logging.DEBUG)

    def assertNamedItemInContainer(self, items: Any, name: str) -> None:  # noqa: N802, the name that tests use
        """Checks that a share, directory, file or snapshot of this name is among the items."""
        found = [(item.get("name"), item.get("snapshot")) for item in items]
        assert any(name in names for names in found), f"{name} is not in {found}"

    def assert_upload_progress(self, size: int, piece: int, progress: list[Any], unknown_size: bool = False) -> None:
        """Checks that an upload reported each of its pieces once, and the whole size beside each.

        Pieces that are sent at the same time may report the same number of bytes, or one that was true a moment ago.
        """
        assert len(progress) == math.ceil(size / piece), progress
        _check(progress, size, piece, 0)
        assert {total for _, total in progress} == {None if unknown_size else size}

    def assert_download_progress(self, size: int, piece: int, first: int, progress: list[Any]) -> None:
        """Checks that a download reported its first request and each piece after it, and the whole size beside each."""
        assert len(progress) == 1 + math.ceil(max(0, size - first) / piece), progress
        if size <= first:
            assert progress == [(size, size)]
            return
        assert progress[0][0] == first
        _check(progress[1:], size, piece, first)
        assert {total for _, total in progress[1:]} == {size}


def _check(progress: list[Any], size: int, piece: int, first: int) -> None:
    for done, _ in progress:
        assert first < done <= size
        assert (done - first) % piece in (0, (size - first) % piece), progress


class LogCaptured:
    """Collects what the client logs."""

    def __init__(self, case: RecordedTestCase) -> None:
        self._case = case
        self._text = io.StringIO()
        self._handler = logging.StreamHandler(self._text)

    def __enter__(self) -> io.StringIO:
        self._case.enable_logging()
        self._handler.setFormatter(logging.Formatter(_FORMAT))
        self._case.logger.addHandler(self._handler)
        return self._text

    def __exit__(self, *_: object) -> None:
        self._case.logger.removeHandler(self._handler)
        self._case.configure_logging()


def sas_token() -> str:
    """Returns a link of an account that does not exist."""
    from azure.storage.fileshare import AccountSasPermissions, ResourceTypes, generate_account_sas

    ends = datetime.now() + timedelta(days=8)
    kinds, allowed = ResourceTypes(object=True), AccountSasPermissions(read=True, list=True)
    return "?" + generate_account_sas("test", "a" * 30 + "b" * 30, kinds, allowed, ends)


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """Stands for the recorder of Microsoft's own runs."""


def install() -> None:
    """Makes the modules importable that the tests import."""
    nothing = ("add_body_regex_sanitizer", "add_general_regex_sanitizer", "add_header_regex_sanitizer",
               "add_oauth_response_sanitizer", "add_uri_string_sanitizer", "set_custom_default_matcher",
               "add_remove_header_sanitizer", "add_uri_regex_sanitizer", "EnvironmentVariableOptions")  # fmt: skip
    _module(
        "devtools_testutils",
        is_live=lambda: True,
        recorded_by_proxy=recorded,
        test_proxy=test_proxy,
        EnvironmentVariableLoader=EnvironmentVariableLoader,
        ResponseCallback=ResponseCallback,
        RetryCounter=RetryCounter,
        FakeTokenCredential=FakeTokenCredential,
        **dict.fromkeys(nothing, lambda *_, **__: None),
    )
    _module("devtools_testutils.fake_credentials", STORAGE_ACCOUNT_FAKE_KEY="")
    _module("devtools_testutils.fake_credentials_async", AsyncFakeCredential=None)
    _module("devtools_testutils.aio", recorded_by_proxy_async=recorded)
    alone = dict.fromkeys((f"GenericTestProxyParametrize{n}" for n in (1, 2)), lambda: lambda test: test)
    common = {"LogCaptured": LogCaptured, **alone}
    _module("devtools_testutils.storage", StorageRecordedTestCase=RecordedTestCase, **common)
    _module("devtools_testutils.storage.aio", AsyncStorageRecordedTestCase=RecordedTestCase, **common)
    _module("devtools_testutils.storage.testcase", generate_sas_token=sas_token)


def _module(name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    module.__path__ = []
    vars(module).update(members)
    sys.modules[name] = module
