"""A Batch AI service for tests, as a process that ends with them, and empty resource groups in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from batchhvd.resources.session import Session
from batchhvd.wire.connection import Connection
from batchhvd.wire.facts.identity import SUBSCRIPTION
from batchhvd.wire.local_service import read_endpoint, wait_started

if TYPE_CHECKING:
    from batchhvd import Cluster, Experiment, FileShare, ResourceGroup, Workspace

NODES = 2
"""The size of a test's cluster."""

_END = 30.0  # seconds that the service may take to end; it ends running jobs


class BatchAI:
    """An empty resource group of a Batch AI service; what else a job needs is made when it is first used.

    Attributes:
        session: the way to the service.
        group: the group.
        root: the service's folder.
    """

    def __init__(self, session: Session, group: ResourceGroup, root: Path) -> None:
        self.session, self.group, self.root = session, group, root

    def __repr__(self) -> str:
        return f"BatchAI({self.session.endpoint!r}, group={self.group.name!r})"

    @cached_property
    def workspace(self) -> Workspace:
        """The workspace ``test``."""
        return self.group.create_workspace("test")

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment ``test``."""
        return self.workspace.create_experiment("test")

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster ``test`` of two nodes, each of them a process of this machine."""
        return self.workspace.create_cluster("test", vm_size="Standard_D4s_v3", nodes=NODES)

    @cached_property
    def share(self) -> FileShare:
        """The share ``test`` in a storage account of the group, for jobs to mount."""
        return self.group.create_storage_account(f"test{os.urandom(10).hex()}").create_share("test")


class BatchAIService:
    """A Batch AI service for the tests of one process.

    Args:
        root: the folder that it keeps everything in.
        *options: further options of ``python -m batchhvd.service``.
    """

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        with (root / "start.log").open("wb") as log:
            # It ends when its standard input does: when this process ends, however that happens.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "batchhvd.testing.tied", "--root", str(root), *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_started(self._process, root, lambda: bool(read_endpoint(root)))
        # The service holds a deletion's answer back for a moment, so that few clients have to ask again.
        self._deletions = ThreadPoolExecutor(1, thread_name_prefix="batchai")
        self._session = Session(Connection(read_endpoint(root), SUBSCRIPTION, root=str(root)))

    @contextmanager
    def group(self) -> Iterator[BatchAI]:
        """Gives an empty group; its deletion is begun afterwards, and ends its jobs."""
        group = self._session.create_group(f"test-{os.urandom(6).hex()}")
        try:
            yield BatchAI(self._session, group, self.root)
        finally:
            groups = self._session._connection.resources.resource_groups
            self._deletions.submit(groups.begin_delete, group.name, polling=False)

    def close(self) -> None:
        """Ends the service and its jobs."""
        self._deletions.shutdown()
        self._session.close()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_END)
