"""How to reach a service: endpoint, credential, and the Azure clients, created on first use.

A connection is made of strings. One to a local service is made of the service's root: the endpoint and the token are
read from there for each request, so that it still works after the service was started again on another port.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from azure.core.exceptions import AzureError, DeserializationError, HttpResponseError, SerializationError

from batchhvd.errors import AccessDeniedError, SpecError
from batchhvd.wire.facts.hosts import read_url
from batchhvd.wire.local_service import read_endpoint, read_started
from batchhvd.wire.loopback import LOOPBACK, LocalTransport, LoopbackBearer, TokenFile
from batchhvd.wire.translation import translate
from batchhvd.wire.waiting import Pace

if TYPE_CHECKING:
    from azure.core import PipelineClient
    from azure.core.credentials import TokenCredential
    from azure.storage.blob import BlobServiceClient
    from azure.storage.fileshare import ShareClient, ShareServiceClient


AGAIN = {"retry_on_methods": ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")}
"""An option for operations whose POST or PATCH may be sent twice: azure-core repeats neither unasked."""

# Resource Manager of the public cloud and of the national ones; none of them has Batch AI any more.
_PUBLIC = frozenset(
    {
        "management.azure.com",
        "management.chinacloudapi.cn",
        "management.microsoftazure.de",
        "management.usgovcloudapi.net",
    }
)
_SCOPE = "https://management.azure.com/.default"


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class Connection:
    """A way to one service and subscription; equal to every other way to the same one."""

    def __init__(
        self, endpoint: str, subscription: str, *, root: str | None = None, credential: TokenCredential | None = None
    ) -> None:
        """Creates a connection without sending a request.

        Args:
            endpoint: URL of Resource Manager, https, or http on this machine.
            subscription: the subscription's id.
            root: the local service's folder, or None for any other service.
            credential: proves who asks; None takes the root's token, else azure-identity's default chain.

        Raises:
            SpecError: the endpoint is not an https URL, nor http on this machine.
        """
        self._endpoint = _checked(endpoint)
        self.subscription = subscription
        self.root = root
        self._credential = credential
        self._closing: list[Callable[[], None]] = []
        self._file_services: dict[tuple[str, str, str], ShareServiceClient] = {}
        self._blob_services: dict[tuple[str, str, str], BlobServiceClient] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Connection) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Connection({self.root or self.endpoint!r}, {self.subscription!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The credential stays behind: a secret has no place in a pickle. A root's token is read again, the default
        # chain is asked again.
        return _rebuild, (self._endpoint, self.subscription, self.root)

    def _key(self) -> tuple[str, str]:
        return self.root or self.endpoint, self.subscription.lower()

    @property
    def endpoint(self) -> str:
        """The service's URL, without a slash at its end; for a local service, its present one."""
        if self.root is not None:
            self._endpoint = read_endpoint(self.root) or self._endpoint
        return self._endpoint

    @property
    def loopback(self) -> bool:
        """Whether the service runs on this machine."""
        return urlsplit(self._endpoint).hostname in LOOPBACK

    @property
    def started(self) -> datetime | None:
        """When the local service was started; None for any other service."""
        return read_started(self.root) if self.root is not None else None

    @property
    def pace(self) -> Pace:
        """How often to look while waiting: a service on this machine is cheap to ask."""
        return Pace(first=0.1, longest=1.0) if self.loopback else Pace()

    # The three below are not typed: their annotations know neither wire-shaped dictionaries nor what a listing yields.

    @cached_property
    def resources(self) -> Any:
        """The client for resource groups."""
        from azure.mgmt.resource.resources import ResourceManagementClient

        return self._made(
            ResourceManagementClient(self.credential, self.subscription, base_url=self._endpoint, **self._options())
        )

    @cached_property
    def storage(self) -> Any:
        """The client for storage accounts and their keys."""
        from azure.mgmt.storage import StorageManagementClient

        return self._made(
            StorageManagementClient(self.credential, self.subscription, base_url=self._endpoint, **self._options())
        )

    @cached_property
    def batchai(self) -> Any:
        """The client for workspaces and all below them.

        Raises:
            HttpResponseError: the endpoint is public Azure's, which ended the service in 2019; ``translating`` makes
                ``ServiceRetiredError`` of it.
        """
        if urlsplit(self._endpoint).hostname in _PUBLIC:
            raise _Retired(self._endpoint)
        from azure.mgmt.batchai import BatchAI

        from batchhvd.wire import added_fields

        client = BatchAI(self.credential, self.subscription, self._endpoint, **self._options())
        added_fields.teach(client)
        return self._made(client)

    def operations(self, client: str, group: str) -> Any:
        """Returns a group of operations of one of the three clients, by their names."""
        return getattr(getattr(self, client), group)

    @cached_property
    def links(self) -> PipelineClient[Any, Any]:
        """The client for links that carry their own permission, such as those of output files."""
        from azure.core import PipelineClient
        from azure.core.pipeline.policies import HeadersPolicy, UserAgentPolicy

        # A stream survives lost connections; a terminal needs no line for each of them.
        noise = logging.getLogger("azure.core.pipeline.transport")
        if not noise.handlers:
            noise.addHandler(logging.NullHandler())
        # No retries here: the reader of a growing file counts its bytes and knows better where to continue.
        policies = [HeadersPolicy(), UserAgentPolicy(sdk_moniker="batchhvd")]
        return self._made(PipelineClient(self._endpoint, policies=policies, **self._transport()))

    def share(self, url: str, account: str, key: str) -> ShareClient:
        """Returns a client for one file share, the same for the same arguments.

        Args:
            url: the share's URL, ``<the account's file endpoint>/<share>``.
            account: the storage account's name.
            key: one of the account's keys, base64.
        """
        place, _, name = url.rstrip("/").rpartition("/")
        return self.share_service(place, account, key).get_share_client(name)

    def share_service(self, url: str, account: str, key: str) -> ShareServiceClient:
        """Returns a client for an account's file service, the same for the same arguments.

        Args:
            url: the account's file endpoint.
            account: the storage account's name.
            key: one of the account's keys, base64.
        """
        from azure.core.credentials import AzureNamedKeyCredential
        from azure.storage.fileshare import ShareServiceClient

        known = (url, account, key)
        if known not in self._file_services:
            credential = AzureNamedKeyCredential(account, key)
            client = ShareServiceClient(url, credential=credential, **self._transport(), **self._pauses())
            self._file_services[known] = self._made(client)
        return self._file_services[known]

    def blob_service(self, url: str, account: str, key: str) -> BlobServiceClient:
        """Returns a client for an account's blob service, the same for the same arguments.

        Args:
            url: the account's blob endpoint.
            account: the storage account's name.
            key: one of the account's keys, base64.
        """
        from azure.core.credentials import AzureNamedKeyCredential
        from azure.storage.blob import BlobServiceClient

        known = (url, account, key)
        if known not in self._blob_services:
            credential = AzureNamedKeyCredential(account, key)
            transport = self._transport("endpoint-blobs")
            client = BlobServiceClient(url, credential=credential, **transport, **self._pauses())
            self._blob_services[known] = self._made(client)
        return self._blob_services[known]

    def _pauses(self) -> dict[str, Any]:
        """The pauses between attempts; the storage packages' own (15, 24, 42 s) are for a service a continent away."""
        if self.loopback:
            return {"initial_backoff": 0, "increment_base": 0, "random_jitter_range": 0, "retry_total": 2}
        return {"initial_backoff": 1, "increment_base": 2, "random_jitter_range": 1}

    @cached_property
    def credential(self) -> TokenCredential:
        """What proves who asks.

        Raises:
            AccessDeniedError: it is a service on this machine, and no token for it is known.
        """
        if self._credential is not None:
            return self._credential
        if self.root is not None:
            return TokenFile(self.root)
        if self.loopback:
            what = f"no token is known for {self._endpoint}"
            other = "set BATCHHVD_TOKEN, or set BATCHHVD_ROOT to the service's folder"
            raise AccessDeniedError(f"{what}. Give connect() one as credential, {other}").told(f"{what}: {other}")
        from azure.identity import DefaultAzureCredential

        return DefaultAzureCredential()

    @contextmanager
    def translating(self, what: str, remedy: str = "") -> Iterator[None]:
        """Turns what the Azure packages raise into this package's errors.

        Args:
            what: what is requested of which resource, such as ``"job 'cifar' cannot be read"``.
            remedy: what to do next, if it is known better than from the kind of error.
        """
        try:
            yield
        except Exception as error:
            raise self.translated(error, what, remedy) from error

    def translated(self, error: Exception, what: str, remedy: str = "") -> Exception:
        """Returns this package's error for what an Azure package raised; any other error unchanged."""
        from requests import RequestException

        known = (AzureError, DeserializationError, JSONDecodeError, RequestException, SerializationError)
        if not isinstance(error, known):
            return error
        if remedy := remedy or self._token_remedy(error):
            return translate(error, what=what, remedy=remedy)
        return translate(error, what=what, remedy=self._start(error), shell=self._start(error, shell=True))

    def close(self) -> None:
        """Closes the connections that are open; the next request opens them again."""
        while self._closing:
            self._closing.pop()()
        self._file_services.clear()
        self._blob_services.clear()
        for name in ("resources", "storage", "batchai", "links"):
            self.__dict__.pop(name, None)

    def _token_remedy(self, error: Exception) -> str:
        """Returns what to do if the service refused a token that the caller did not give as an argument."""
        source = getattr(self._credential, "source", "")
        if not source or getattr(error, "status_code", None) != HTTPStatus.UNAUTHORIZED:
            return ""
        return f"The token was that of {source}: set it to the content of the service's file 'token', or unset it"

    def _start(self, error: Exception, *, shell: bool = False) -> str:
        """Returns how to start the service if it is one of this machine and does not answer."""
        if not self.loopback or getattr(error, "status_code", None) is not None:
            return ""
        if self.root is None:
            return f"Nothing answers at {self._endpoint}: start the service there and try again"
        if shell:
            return f"The service is not running: start it with `batchhvd --root {self.root} serve --detach`"
        return (
            f"The service is not running: start it with batchhvd.local({self.root!r}) or "
            f"`python -m batchhvd.service --root {self.root}`; existing handles keep working"
        )

    def _made(self, client: C) -> C:
        self._closing.append(client.close)
        return client

    def _transport(self, name: str = "") -> dict[str, Any]:
        """The transport of a client for a service on this machine; the package's own for any other.

        Args:
            name: the file of the root that names another address of the service than its endpoint.
        """
        if not self.loopback:
            return {}
        # A credential that the caller gave is for whoever the caller named; a root's token is for the root's service.
        root = self.root if self._credential is None else None
        return {"transport": LocalTransport(lambda query: self._address(name, query), root)}

    def _address(self, name: str, query: str) -> str:
        """Returns the present address of the root's service, "" if there is no root; links to blobs have their own."""
        if self.root is None:
            return ""
        name = "endpoint-blobs" if "sr=b" in query.split("&") else name
        return read_endpoint(self.root, name) if name else self.endpoint

    def _options(self) -> dict[str, Any]:
        """Returns the settings of all three Resource Manager clients."""
        if not self.loopback:
            return {"polling_interval": 2, "credential_scopes": [_SCOPE]}
        return {
            "authentication_policy": LoopbackBearer(self.credential, _SCOPE),
            "polling_interval": 0.1,
            "retry_backoff_factor": 0.2,
            "retry_connect": 2,
            **self._transport(),
        }


class _Retired(HttpResponseError):
    """The answer that public Azure gives since 2019, without asking for it."""

    error_code = "InvalidResourceNamespace"

    def __init__(self, endpoint: str) -> None:
        super().__init__(f"Microsoft.BatchAI is not offered at {endpoint}: Azure ended Batch AI in 2019")


def _checked(endpoint: str) -> str:
    parts = read_url(endpoint)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK):
        return endpoint.rstrip("/")
    raise SpecError(
        f"endpoint {endpoint!r} is neither https nor http on this machine",
        remedy="give a URL such as https://management.azure.com or http://127.0.0.1:8000",
    )


def _rebuild(endpoint: str, subscription: str, root: str | None) -> Connection:
    return Connection(endpoint, subscription, root=root)
