"""The client and a running service, and a place of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import define

import batchhvd
from batchhvd import Cluster, CustomToolkit, Experiment, FileShare, Job, JobSpec, ResourceGroup, Workspace
from batchhvd.resources.session import Session


@define
class Place:
    """A group with all that a job needs."""

    group: ResourceGroup
    workspace: Workspace
    experiment: Experiment
    cluster: Cluster
    share: FileShare

    def spec(self, command: str, **more: Any) -> JobSpec:
        """A job of one shell command that logs to the share."""
        mount = self.share.mount("data")
        chosen = {"nodes": 1, "task": CustomToolkit(command), "mounts": [mount], "logs": mount / "logs", **more}
        return JobSpec(**chosen)

    def run(self, command: str, name: str = "", **more: Any) -> Job:
        """Submits a job of one shell command."""
        spec = self.spec(command, **more)
        return self.experiment.create_job(name or f"j{os.urandom(4).hex()}", spec, cluster=self.cluster)


@pytest.fixture(scope="session")
def session(service: Any) -> Iterator[Session]:
    with batchhvd.local(service.root) as found:
        yield found


@pytest.fixture(name="make_place", scope="session")
def make_place_fixture() -> Callable[[Session, str], Place]:
    return make_place


def make_place(session: Session, name: str) -> Place:
    group = session.create_group(name)
    workspace = group.create_workspace("work")
    experiment = workspace.create_experiment("tries")
    cluster = workspace.create_cluster("nodes", vm_size="Standard_NC6", nodes=2)
    share = group.create_storage_account(f"s{os.urandom(8).hex()}").create_share("files")
    share.create_directory("logs")
    return Place(group, workspace, experiment, cluster.wait(timeout=30), share)


@pytest.fixture(scope="session")
def place(session: Session) -> Iterator[Place]:
    """One place for all tests that only add jobs and files of their own."""
    made = make_place(session, f"shared-{os.urandom(4).hex()}")
    yield made
    made.group.delete()


@pytest.fixture
def group(session: Session) -> Iterator[ResourceGroup]:
    """An empty group."""
    made = session.create_group(f"g.{os.urandom(4).hex()}")
    yield made
    made.delete()
