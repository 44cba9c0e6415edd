"""The way in: ``local()`` for the service of this machine, ``connect()`` for any other."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

from batchhvd.errors import AccessDeniedError, ServiceError, SpecError
from batchhvd.resources.base import children
from batchhvd.resources.group import ResourceGroup
from batchhvd.resources.values.listing import Listing
from batchhvd.wire import configuration, local_service
from batchhvd.wire.connection import Connection
from batchhvd.wire.facts.identity import SUBSCRIPTION
from batchhvd.wire.local_service import LocalService
from batchhvd.wire.loopback import Token, TokenFile
from batchhvd.wire.roots import resolved_root
from batchhvd.wire.service_options import ServiceOptions
from batchhvd.wire.waiting import Clock

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from typing_extensions import Self

    from batchhvd.resources.job import Job


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
        environment: str | os.PathLike[str] | None = None,
        toolkit: str = "horovod",
    ) -> Job:
        """Runs a Python script on some nodes, one rank on each, and returns the job without waiting for it.

        Makes what is missing: group ``batchhvd``, workspace ``runs``, cluster ``nodes`` (it grows if needed), share
        ``runs``, and an experiment named after the script; the settings (``batchhvd config``) may name others. Each
        call is a run of its own: ``train-0001``, ``train-0002``. What a script writes to ``$AZ_BATCHAI_OUTPUT_RESULT``
        is its result: ``job.download()``.

        Args:
            script: the script.
            nodes: how many nodes.
            args: its arguments, one text for each.
            code: the folder that is uploaded; None for the script's own. ``.gitignore`` and ``.batchhvdignore`` say
                what is left out; a folder that has not changed is not sent again.
            preparation: a shell command line that runs on each node before.
            environment: a file of requirements, as pip reads it: the script runs in a virtual environment with them,
                which each machine makes once and which adds to the packages of the node's Python.
            toolkit: ``"horovod"``, or ``"pytorch"`` for ranks that find the variables of ``torchrun``.

        Raises:
            SpecError: there is no such script or toolkit, or the folder holds more than a program.
        """
        from batchhvd.resources import quick_run

        return quick_run.submit(
            self,
            script,
            nodes=nodes,
            args=args,
            code=code,
            preparation=preparation,
            environment=environment,
            toolkit=toolkit,
        )

    @property
    def service(self) -> LocalService | None:
        """The local service (its process, start, engine and version), or None if it does not run or is not local."""
        return local_service.find(self._connection.root) if self._connection.root else None

    def stop_service(self, *, timeout: float = 15.0) -> bool:
        """Ends the local service and waits until it is gone; its jobs continue, and the next service finds them.

        Args:
            timeout: seconds to wait.

        Returns:
            Whether one ran.

        Raises:
            SpecError: the session is with another service, which is not this program's to end.
            WaitTimeoutError: it did not end in time.
        """
        if not self._connection.root:
            problem = f"{self.endpoint} is not a local service that this session knows the folder of"
            raise SpecError(problem, remedy="end it where it was started")
        self.close()
        return local_service.stop(self._connection.root, timeout=timeout, clock=self.clock)

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
    root: str | os.PathLike[str] | None = None,
    *,
    engine: str | None = None,
    engine_options: Mapping[str, str | int | float] | None = None,
    prepare: str | None = None,
    allow_directory: Sequence[str | os.PathLike[str]] | None = None,
    containers: str | None = None,
    port: int | None = None,
    idle: float | None = None,
) -> Session:
    """Starts the service of this machine, or finds the running one.

    The service is a separate process: it and its jobs outlive this program. It ends by itself after an hour without
    jobs and requests, or when ``Session.stop_service`` is called. What is None comes from the user's and the project's
    settings (``batchhvd config`` shows them). ``$BATCHHVD_TOKEN`` is for ``connect``; another token in it than the
    service's own is told as a warning.

    Args:
        root: the folder of its records and shares; by default ``$BATCHHVD_ROOT``, else
            ``$XDG_STATE_HOME/batchhvd``, else ``~/.local/state/batchhvd``.
        engine: what runs the jobs; by default ``"processes"``.
        engine_options: the engine's options.
        prepare: where preparations run: ``"overlay"`` (default), ``"host"`` or ``"skip"``.
        allow_directory: directories of this machine that jobs may mount.
        containers: what runs the container images of jobs: ``"podman"``, ``"docker"``, ``"apptainer"``, ``"off"``, or
            ``"auto"`` (default) for the first one that is installed and runs, if any.
        port: the service's port; 0 (default) for a free one.
        idle: seconds without jobs and requests after which it ends, 0 for never.

    Raises:
        UnavailableError: it does not start; the message contains the end of its log.
        ConflictError: a service with another engine or other options runs there.
        SpecError: a file of settings is wrong.
    """
    settings = configuration.read()
    wanted = ServiceOptions.of(
        settings,
        engine=engine,
        engine_options=engine_options,
        prepare=prepare,
        allow_directory=allow_directory,
        containers=containers,
        port=port,
        idle=idle,
    )
    folder = resolved_root(root or cast("str | None", settings.given("root")))
    connection = Connection(local_service.read_endpoint(folder) or "http://127.0.0.1", SUBSCRIPTION, root=folder)
    if not _answers(connection):
        process = local_service.start(folder, *wanted.words())
        local_service.wait_started(process, folder, lambda: _answers(connection))
    else:
        wanted.check(folder, local_service.read_about(folder))
    _tell_of_unused_token(folder)
    return Session(connection)


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
    usual = resolved_root(None)
    owned = given is None and found.loopback and local_service.read_endpoint(usual) == found.endpoint
    given = given or _token_of_environment(usual if owned else None)
    root = usual if owned and given is None else None
    chosen = subscription or (SUBSCRIPTION if found.loopback else os.environ.get("AZURE_SUBSCRIPTION_ID"))
    if not chosen:
        remedy = "give subscription=…, or set AZURE_SUBSCRIPTION_ID"
        error = SpecError("no subscription is given", remedy=remedy)
        raise error.told("no subscription is given; give --subscription, or set AZURE_SUBSCRIPTION_ID")
    return Session(Connection(endpoint, chosen, root=root, credential=given))


def _token_of_environment(root: str | None) -> Token | None:
    """Returns ``$BATCHHVD_TOKEN``, or None if it is not set or is what stands in the root's own file."""
    token = os.environ.get("BATCHHVD_TOKEN")
    return Token(token, "$BATCHHVD_TOKEN") if token and not (root and _is_token_of(root, token)) else None


def _is_token_of(root: str, token: str) -> bool:
    try:
        return TokenFile(root).read() == token
    except AccessDeniedError:
        return False


def _tell_of_unused_token(root: str) -> None:
    """Warns if ``$BATCHHVD_TOKEN`` is set and is not the local service's: somebody may believe that it counts."""
    token = os.environ.get("BATCHHVD_TOKEN")
    if token and not _is_token_of(root, token):
        what = f"$BATCHHVD_TOKEN is not used: the token of the local service is in {root}/token"
        warnings.warn(f"{what}. Unset it, or name the service that it is for as endpoint", UserWarning, stacklevel=3)


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
