"""A place in Batch AI that jobs can be created in: a group with workspace, experiment, cluster and a share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.batchai import BatchAI
from azure.mgmt.batchai import models as m
from azure.storage.fileshare import ShareClient

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
SECRET = "a-secret-that-nobody-sees"


class Bearer(SansIOHTTPPolicy[Any, Any]):
    """Sends a fixed token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def on_request(self, request: Any) -> None:
        request.http_request.headers["Authorization"] = f"Bearer {self._token}"


def connect(service: Any, **options: Any) -> BatchAI:
    """Returns a client of azure-mgmt-batchai for a service."""
    policy: Any = Bearer(service.token)
    return BatchAI(object(), SUBSCRIPTION, service.url, authentication_policy=policy, use_env_settings=False, **options)  # type: ignore[arg-type]


class Place:
    """A group with workspace, experiment, cluster and a share that jobs mount."""

    def __init__(self, client: Any, group: str, account: tuple[str, str], url: str) -> None:
        self.client, self.group = client, group.rpartition("/")[2]
        self.account, self.key = account
        self.share = ShareClient(f"{url}/{self.account}", "share", credential=self.key)
        self.share.create_share()
        client.workspaces.begin_create(self.group, "w", m.WorkspaceCreateParameters(location="eastus")).result()
        client.experiments.begin_create(self.group, "w", "e").result()

    def cluster(self, nodes: int = 1, name: str = "c", **more: Any) -> Any:
        parameters = m.ClusterCreateParameters(
            vm_size="Standard_NC6",
            user_account_settings=m.UserAccountSettings(admin_user_name="me", admin_user_password=SECRET),
            scale_settings=m.ScaleSettings(manual=m.ManualScaleSettings(target_node_count=nodes)),
            **more,
        )
        return self.client.clusters.begin_create(self.group, "w", name, parameters).result()

    def document(self, command: str = "echo héllo", nodes: int = 1, **more: Any) -> dict[str, Any]:
        mount = {
            "accountName": self.account,
            "azureFileUrl": f"https://{self.account}.file.core.windows.net/share",
            "credentials": {"accountKey": self.key},
            "relativeMountPath": "m",
        }
        return {
            "properties": {
                "cluster": {"id": self.client.clusters.get(self.group, "w", "c").id},
                "nodeCount": nodes,
                "customToolkitSettings": {"commandLine": command},
                "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m",
                "mountVolumes": {"azureFileShares": [mount]},
                **more,
            }
        }

    def run(self, name: str, document: dict[str, Any]) -> Any:
        return self.client.jobs.begin_create(self.group, "w", "e", name, document).result()

    def job(self, name: str) -> Any:
        return self.client.jobs.get(self.group, "w", "e", name)

    def files(self, name: str, id: str = "stdouterr", **more: Any) -> list[Any]:
        options = m.JobsListOutputFilesOptions(outputdirectoryid=id, **more)
        return list(self.client.jobs.list_output_files(self.group, "w", "e", name, options))


def error_of(caught: pytest.ExceptionInfo[HttpResponseError]) -> Any:
    """Returns the error document of a refused request."""
    assert caught.value.error is not None
    return caught.value.error


def ended(place: Place, name: str) -> Callable[[], Any]:
    return lambda: place.job(name).execution_state in ("succeeded", "failed") and place.job(name)
