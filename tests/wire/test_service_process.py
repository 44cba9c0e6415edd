"""The service as a process: found by its files, alone on its root, ended by idleness, alive again after a kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.identity import ClientSecretCredential
from azure.mgmt.resource.resources import ResourceManagementClient

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g"
WORKSPACE = f"{GROUP}/providers/Microsoft.BatchAI/workspaces/w"


def again(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "batchhvd.service", "--root", str(root), *options]
    return subprocess.run(command, text=True, capture_output=True, timeout=60)


def test_what_it_writes_and_takes_away_and_that_it_is_alone(launch: Any) -> None:
    running = launch()
    root: Path = running.root
    second = again(root)
    assert (second.returncode, second.stdout.strip()) == (3, running.url)
    assert running.call("GET", "/subscriptions").status_code == 200
    assert root.stat().st_mode & 0o777 == 0o700
    assert (root / "token").stat().st_mode & 0o777 == 0o600 and len(running.token) >= 32
    assert (root / "state.sqlite").stat().st_mode & 0o777 == 0o600
    about = json.loads((root / "service.json").read_text())
    assert about["pid"] == running.process.pid and about["engine"] == "processes"
    assert running.url.startswith("http://127.0.0.1:")
    assert running.stop() == 0
    assert not (root / "endpoint").exists() and (root / "token").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_state_and_token_outlive_its_end(launch: Any, number: int) -> None:
    first = launch()
    first.call("PUT", GROUP, {"location": "eastus", "tags": {"é": "ü"}})
    token, document = first.token, first.call("GET", GROUP).json()
    first.stop(number)
    (first.root / "endpoint").unlink(missing_ok=True)
    second = launch(root=first.root)
    assert second.token == token and second.call("GET", GROUP).json() == document


def test_it_ends_when_nothing_needs_it(launch: Any) -> None:
    running = launch("--idle", "4")
    time.sleep(1)
    assert running.call("GET", "/subscriptions").status_code == 200
    asked = time.monotonic()
    assert running.process.wait(30) == 0
    assert time.monotonic() - asked > 3.5  # counted from the request on, not from the start


def test_a_job_that_runs_needs_it(launch: Any, poll: Any) -> None:
    first = launch()
    job = prepare_job(first, "while [ ! -e $AZ_BATCHAI_JOB_MOUNT_ROOT/m/go ]; do sleep 0.1; done")
    first.stop()
    second = launch("--idle", "0.5", root=first.root)
    time.sleep(1.5)
    assert second.process.poll() is None
    (second.root / "shares/account/share/go").touch()
    assert second.process.wait(30) == 0  # the job has ended, and then the time was up
    third = launch(root=first.root)
    assert third.call("GET", job).json()["properties"]["executionState"] == "succeeded"


def prepare_job(running: Any, command: str) -> str:
    """Runs a command as a job and returns the job's id."""
    running.call("PUT", GROUP, {"location": "eastus"})
    running.call("PUT", WORKSPACE, {"location": "eastus"})
    running.call("PUT", f"{WORKSPACE}/experiments/e")
    scale = {"manual": {"targetNodeCount": 1}}
    settings = {"vmSize": "STANDARD_D1", "userAccountSettings": {"adminUserName": "me"}, "scaleSettings": scale}
    running.call("PUT", f"{WORKSPACE}/clusters/c", {"properties": settings})
    account = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/account"
    running.call("PUT", account, {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"})
    key = running.call("POST", f"{account}/listKeys").json()["keys"][0]["value"]
    (running.root / "shares" / "account" / "share").mkdir(parents=True)
    mount = {
        "accountName": "account",
        "azureFileUrl": f"{running.url}/account/share",
        "relativeMountPath": "m",
        "credentials": {"accountKey": key},
    }
    properties = {
        "cluster": {"id": f"{WORKSPACE}/clusters/c"},
        "nodeCount": 1,
        "customToolkitSettings": {"commandLine": command},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/m",
        "mountVolumes": {"azureFileShares": [mount]},
    }
    job = f"{WORKSPACE}/experiments/e/jobs/j"
    assert running.call("PUT", job, {"properties": properties}).status_code == 202
    return job


def test_why_it_does_not_start(tmp_path: Path) -> None:
    unknown = again(tmp_path / "a", "--engine", "abacus")
    assert unknown.returncode == 2 and "abacus" in unknown.stderr and "Traceback" not in unknown.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = again(tmp_path / "a", "--port", str(taken.getsockname()[1]))
    assert port.returncode == 2 and "did not start" in port.stderr and "Traceback" not in port.stderr
    option = again(tmp_path / "a", "--option", "nonsense")
    assert option.returncode == 2 and "NAME=VALUE" in option.stderr


@pytest.mark.parametrize("content", [b"", b"\n", b"short", "ü".encode() * 40])
def test_a_token_that_protects_nothing_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    done = again(tmp_path)
    assert done.returncode == 2 and str(tmp_path / "token") in done.stderr and "remove the file" in done.stderr
    assert "Traceback" not in done.stderr and (tmp_path / "token").read_bytes() == content


@pytest.mark.parametrize("options", [(), ("--new-token",)])
def test_a_root_that_everybody_may_write_to_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    root = tmp_path / "open"
    root.mkdir()
    root.chmod(0o777)
    done = again(root, *options)
    assert done.returncode == 2 and f"may write to {root}" in done.stderr and "chmod o-w" in done.stderr
    assert "Traceback" not in done.stderr and list(root.iterdir()) == []


def test_where_it_cannot_start_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "state.sqlite").write_bytes(os.urandom(9000))
    long = tmp_path.joinpath("x" * 3000)
    for root, options in (
        (tmp_path / "a file", ()),
        (tmp_path / "damaged", ()),
        (long, ()),
        (tmp_path / "b", ("--port", "99999")),
        (tmp_path / "b", ("--port", "-1")),
    ):
        done = again(root, *options)
        assert done.returncode == 2 and "did not start" in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.fixture(scope="module")
def secure(start: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = start(tmp_path_factory.mktemp("säfe root"), "--tls")
    yield running
    before = (running.root / "ca.pem").read_bytes()
    assert running.stop() == 0 and not (running.root / "proxy").exists()
    assert (running.root / "ca.pem").read_bytes() == before


def trust(running: Any) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(running.root / "ca.pem"))


def read(running: Any, name: str) -> str:
    return str((running.root / name).read_text().strip())


def test_https_with_a_certificate_made_on_the_spot(secure: Any) -> None:
    assert (secure.root / "tls" / "server.key").stat().st_mode & 0o777 == 0o600
    assert not [path for path in secure.root.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes()][1:]
    url = read(secure, "endpoint-tls")
    headers = {"Authorization": f"Bearer {secure.token}"}
    with httpx.Client(verify=trust(secure), trust_env=False, headers=headers) as client:
        assert client.get(f"{url}/subscriptions?api-version=1").status_code == 200
        id = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/account?api-version=1"
        client.put(f"{url}{GROUP}?api-version=1", json={"location": "eastus"})
        body = {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"}
        document = client.put(url + id, json=body).json()
        assert document["properties"]["primaryEndpoints"]["file"] == f"{url}/account/"
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{url}/subscriptions", trust_env=False)


def test_public_names_through_the_proxy(secure: Any) -> None:
    """A client with factory settings logs in and works: azure-identity and azure-mgmt-resource, told of nothing."""
    proxies, ca = {"https": read(secure, "proxy")}, str(secure.root / "ca.pem")
    options: dict[str, Any] = {"proxies": proxies, "connection_verify": ca}
    credential = ClientSecretCredential(SUBSCRIPTION, "anyone", secure.token, **options)
    with ResourceManagementClient(credential, SUBSCRIPTION, **options) as client:
        assert client.resource_groups.create_or_update("g", {"location": "eastus"}).name == "g"
        client.resource_groups.begin_delete("g").result()
        assert not client.resource_groups.check_existence("g")
    wrong = ClientSecretCredential(SUBSCRIPTION, "anyone", "wrong", **options)
    with pytest.raises(Exception, match="file 'token'"):
        wrong.get_token("https://management.azure.com/.default")


@pytest.mark.parametrize("name", ["example.com", "evilmanagement.azure.com", "management.azure.com.evil.example"])
def test_the_proxy_leads_nowhere_else(secure: Any, name: str) -> None:
    with httpx.Client(proxy=read(secure, "proxy"), verify=trust(secure), trust_env=False) as client:
        with pytest.raises(httpx.ProxyError, match="403"):
            client.get(f"https://{name}/")
        assert client.get(f"http://{name}/").status_code == 403


def test_the_proxy_outlives_rude_clients(secure: Any) -> None:
    host, _, port = read(secure, "proxy").partition("://")[2].partition(":")
    for data in (b"", b"\0" * 70_000, b"CONNECT management.azure.com:443 HTTP/1.1\r\n\r\nno TLS"):
        with socket.create_connection((host, int(port)), 5) as rude:
            rude.sendall(data)
    with httpx.Client(proxy=read(secure, "proxy"), verify=trust(secure), trust_env=False) as client:
        assert client.get("https://management.azure.com/metadata/endpoints").status_code == 200
    assert os.fspath(secure.root) and "Traceback" not in secure.log()
