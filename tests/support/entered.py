"""A cluster whose nodes can be entered, with a key and a password, and OpenSSH's client to do so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from azure.storage.fileshare import ShareClient

from tests.support.waiting import until

NEEDED = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs openssh-client")
USER, PASSWORD = "ada", "correct horse"


@define
class Entered:
    """A cluster ``c`` of a running service, and what is needed to enter its nodes."""

    running: Any
    folder: Path
    nodes: int = 2
    group: str = field(init=False)
    account: str = field(init=False)
    key: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.new_key("key")
        self.group = f"/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g{os.urandom(4).hex()}"
        self.put(self.group, {"location": "eastus"})
        self.put(self.workspace, {"location": "eastus"})
        self.put(f"{self.workspace}/experiments/e")
        self.account, self.key = f"acc{os.urandom(5).hex()}", ""
        id = f"{self.group}/providers/Microsoft.Storage/storageAccounts/{self.account}"
        self.put(id, {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"})
        self.key = self.running.call("POST", f"{id}/listKeys").json()["keys"][0]["value"]
        ShareClient(f"{self.running.url}/{self.account}", "share", credential=self.key).create_share()
        self.cluster("c")

    @property
    def workspace(self) -> str:
        return f"{self.group}/providers/Microsoft.BatchAI/workspaces/w"

    def new_key(self, name: str) -> Path:
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        return path

    def put(self, path: str, body: Any = None) -> None:
        answer = self.running.call("PUT", path, body)
        if answer.status_code != 201:
            self.running.finish(answer)

    def cluster(self, name: str, **settings: Any) -> None:
        """Creates a cluster and waits for its nodes."""
        key = (self.folder / "key.pub").read_text()
        account = {"adminUserName": USER, "adminUserSshPublicKey": key, "adminUserPassword": PASSWORD, **settings}
        scale = {"manual": {"targetNodeCount": self.nodes}}
        account = {name: value for name, value in account.items() if value is not None}
        properties = {"vmSize": "STANDARD_D1", "userAccountSettings": account, "scaleSettings": scale}
        self.put(f"{self.workspace}/clusters/{name}", {"properties": properties})
        until(lambda: len(self.logins(name)) == self.nodes)

    def logins(self, cluster: str = "c") -> list[dict[str, Any]]:
        answer = self.running.call("POST", f"{self.workspace}/clusters/{cluster}/listRemoteLoginInformation")
        found: list[dict[str, Any]] = answer.json()["value"]
        return found

    def port(self, node: int = 0, cluster: str = "c") -> int:
        return int(self.logins(cluster)[node]["port"])

    def job(self, name: str, command: str, **more: Any) -> str:
        """Creates a job on all nodes and returns its path."""
        path = f"{self.workspace}/experiments/e/jobs/{name}"
        mount = {
            "accountName": self.account,
            "azureFileUrl": f"https://{self.account}.file.core.windows.net/share",
            "credentials": {"accountKey": self.key},
            "relativeMountPath": "m",
        }
        properties = {
            "cluster": {"id": f"{self.workspace}/clusters/c"},
            "nodeCount": self.nodes,
            "customToolkitSettings": {"commandLine": command},
            "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m",
            "mountVolumes": {"azureFileShares": [mount]},
            **more,
        }
        self.put(path, {"properties": properties})
        return path

    def output(self, path: str, name: str = "stdout.txt") -> str:
        """Returns what a job has written."""
        found = sorted(
            (self.running.root / "shares" / self.account / "share").rglob(f"jobs/{Path(path).name}/*/stdouterr/{name}")
        )
        return found[0].read_text() if found else ""

    def state(self, path: str) -> str:
        return str(self.running.call("GET", path).json()["properties"]["executionState"])

    def command(
        self, *words: str, program: str = "ssh", node: int = 0, key: str = "key", user: str = USER
    ) -> list[str]:
        """Returns a command line of OpenSSH; ``@NODE`` in a word stands for the user and the host."""
        options = {
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
            "StrictHostKeyChecking": "accept-new",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "LogLevel": "ERROR",
        }
        given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        own = ["-i", str(self.folder / key)] if key else ["-o", "PubkeyAuthentication=no"]
        place = ["-p" if program == "ssh" else "-P", str(self.port(node))]
        return [
            program,
            "-F",
            "/dev/null",
            *given,
            *own,
            *place,
            *(w.replace("@NODE", f"{user}@127.0.0.1") for w in words),
        ]

    def run(self, *words: str, text: str | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words, **more), input=text, capture_output=True, text=True, timeout=60, check=False
        )
