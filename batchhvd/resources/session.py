"""The way in: ``local()`` for the service of this machine, ``connect()`` for any other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from batchhvd.errors import ConflictError, ServiceError, SpecError
from batchhvd.resources.base import Listing, children
from batchhvd.resources.group import ResourceGroup
from batchhvd.wire import local_service
from batchhvd.wire.connection import Connection
from batchhvd.wire.facts.identity import SUBSCRIPTION
from batchhvd.wire.loopback import Token
from batchhvd.wire.waiting import Clock

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from typing_extensions import Self

    from batchhvd.resources.job import Job

_IDLE = 3600  # seconds after which a service ends that has had neither jobs nor requests
_ENGINE = "processes"


class Session:
    """The way to one service and subscription; it can be pickled (without the credential) and used from threads."""

    def __init__(self, connection: Connection, *, clock: Clock | None = None) -> None:
        """Creates a session; users call ``local`` or ``connect``.

        Args:
            connection: the way to the service.
            clock: the clock for all waits; None for the machine's own.
        """
        self.clock = clock
        self._connection = connection

    @property
    def endpoint(self) -> str:
        """The service's URL; for a local service, its present one."""
        return self._connection.endpoint

    @property
    def subscription(self) -> str:
        """The subscription's id."""
        return self._connection.subscription

    def create_group(
        self, name: str, *, location: str = "eastus", tags: Mapping[str, str] | None = None
    ) -> ResourceGroup:
        """Creates a resource group, or returns the existing one.

        Args:
            name: its name.
            location: its region; only a name to a local service.
            tags: its tags.
        """
        return ResourceGroup(self, name)._create(location, tags or {})

    def group(self, name: str) -> ResourceGroup:
        """Returns a handle to a resource group without sending a request."""
        return ResourceGroup(self, name)

    def groups(self) -> Listing[ResourceGroup]:
        """Lists the subscription's resource groups."""
        return children(ResourceGroup, self)

    def run(
        self,
        script: str | os.PathLike[str],
        *,
        nodes: int = 1,
        args: Sequence[str] = (),
        code: str | os.PathLike[str] | None = None,
        preparation: str = "",
    ) -> Job:
        """Runs a Python script on some nodes, one rank on each, and returns the job without waiting for it.

        Makes what is missing: group ``batchhvd``, workspace ``runs``, cluster ``nodes`` (it grows if needed), share
        ``runs``, and an experiment named after the script. Each call is a run of its own: ``train-0001``,
        ``train-0002``. What the script writes to ``$AZ_BATCHAI_OUTPUT_RESULT`` is its result: ``job.download()``.

        Args:
            script: the script.
            nodes: how many nodes.
            args: its arguments, one text for each.
            code: the folder that is uploaded; None for the script's own. ``.gitignore`` and ``.batchhvdignore`` say
                what is left out; a folder that has not changed is not sent again.
            preparation: a shell command line that runs on each node before.

        Raises:
            SpecError: there is no such script, or the folder holds more than a program.
        """
        from batchhvd.resources import quick_run

        return quick_run.submit(self, script, nodes=nodes, args=args, code=code, preparation=preparation)

    def close(self) -> None:
        """Closes open connections; the service and its jobs continue, and the session can be used again."""
        self._connection.close()

    @property
    def id(self) -> str:
        """The subscription's id, as the ids of its resource groups begin."""
        return f"/subscriptions/{self.subscription}"

    @property
    def _path(self) -> tuple[str, ...]:
        return ()

    @property
    def _session(self) -> Session:
        return self

    def _asking(self, verb: str) -> AbstractContextManager[None]:
        return self._connection.translating(f"subscription {self.subscription!r} cannot be {verb}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and self._connection == other._connection

    def __hash__(self) -> int:
        return hash(self._connection)

    def __repr__(self) -> str:
        return f"Session({self.endpoint!r}, subscription={self.subscription!r})"


def local(
    root: str | os.PathLike[str] | None = None, *, engine: str = _ENGINE, containers: str | None = None
) -> Session:
    """Starts the service of this machine, or finds the running one.

    The service is a separate process: it and its jobs outlive this program. It ends by itself after an hour without
    jobs and requests.

    Args:
        root: the folder of its records and shares; None for ``$BATCHHVD_ROOT``, else
            ``$XDG_STATE_HOME/batchhvd``, else ``~/.local/state/batchhvd``.
        engine: what runs the jobs, if the service has to be started.
        containers: what runs their container images, if the service has to be started: ``"podman"``, ``"docker"``,
            ``"apptainer"``, ``"off"``, or ``"auto"`` for the first one that is installed and runs, if any; None for
            ``$BATCHHVD_CONTAINERS``, else ``"auto"``.

    Raises:
        UnavailableError: it does not start; the message contains the end of its log.
        ConflictError: a service with another engine runs there.
    """
    folder = local_service.resolved_root(root)
    connection = Connection(local_service.read_endpoint(folder) or "http://127.0.0.1", SUBSCRIPTION, root=folder)
    if not _answers(connection):
        options = ["--containers", containers] if containers else []
        process = local_service.start(folder, "--engine", engine, *options, "--idle", str(_IDLE))
        local_service.wait_started(process, folder, lambda: _answers(connection))
        return Session(connection)
    about = local_service.read_about(folder)
    _check_running(folder, "jobs with the engine", about.get("engine"), engine, _ENGINE)
    _check_running(folder, "container images with", about.get("containers", "off"), containers or "auto", "auto")
    return Session(connection)


def _check_running(folder: str, what: str, running: object, asked: str, usual: str) -> None:
    """Raises an error if a service runs that was started with another option than the one that is asked for now."""
    if asked not in (usual, running):
        raise ConflictError(
            f"the local service in {folder} runs {what} {running!r}, not with {asked!r}. "
            "End it first, or use another root"
        )


def connect(
    endpoint: str = "https://management.azure.com",
    credential: TokenCredential | str | None = None,
    *,
    subscription: str | None = None,
) -> Session:
    """Returns a session with any service that speaks Azure's protocols, without sending a request.

    Args:
        endpoint: URL of Resource Manager: https, or http on this machine.
        credential: any credential of azure-identity, or a bearer token; None for ``$BATCHHVD_TOKEN``, then the token of
            the local service that has this endpoint, then ``DefaultAzureCredential``.
        subscription: the subscription's id; None for ``$AZURE_SUBSCRIPTION_ID``, on this machine the local service's.

    Raises:
        SpecError: the endpoint is not such a URL, or no subscription is given.
    """
    token = credential if isinstance(credential, str) else None
    given = Token(token) if token else None if isinstance(credential, str) else credential
    found = Connection(endpoint, subscription or "", credential=given)
    usual = local_service.resolved_root(None)
    owned = given is None and found.loopback and local_service.read_endpoint(usual) == found.endpoint
    root = usual if owned else None
    if given is None and root is None and os.environ.get("BATCHHVD_TOKEN"):
        given = Token(os.environ["BATCHHVD_TOKEN"])
    chosen = subscription or (SUBSCRIPTION if found.loopback else os.environ.get("AZURE_SUBSCRIPTION_ID"))
    if not chosen:
        remedy = "give subscription=…, or set AZURE_SUBSCRIPTION_ID"
        error = SpecError("no subscription is given", remedy=remedy)
        raise error.told("no subscription is given; give --subscription, or set AZURE_SUBSCRIPTION_ID")
    return Session(Connection(endpoint, chosen, root=root, credential=given))


def _answers(connection: Connection) -> bool:
    """Says whether the service that wrote the endpoint answers: the file may have outlived it."""
    if not connection.root or not local_service.read_endpoint(connection.root):
        return False
    try:
        with connection.translating("the local service cannot be reached"):
            connection.resources.resource_groups.check_existence("-", retry_total=0, connection_timeout=5)
    except ServiceError:
        return False
    return True
