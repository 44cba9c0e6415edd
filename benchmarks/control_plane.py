"""How fast the local service answers: GETs of a job by several clients at once.

    python benchmarks/control_plane.py [--clients 8] [--seconds 10] [--output benchmarks/results/control_plane.json]

Each client is a process of its own with one connection and sends its next request when it has the answer to the last.
The service runs with its scheduler, on a root in a temporary folder, with one job that waits for nodes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

GROUP = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/bench"
WORKSPACE = f"{GROUP}/providers/Microsoft.BatchAI/workspaces/w"
ACCOUNT = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/benchaccount"
JOB = f"{WORKSPACE}/experiments/e/jobs/j"
VERSION = "?api-version=2018-05-01"
GOAL = {"median_ms": 3.0, "p99_ms": 10.0}


def main() -> int:
    """Measures, prints and writes the result; returns 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "control_plane.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service, url, token = start(Path(folder))
        try:
            prepare(url, token, Path(folder))
            result = measure(url, token, options.clients, options.seconds)
        finally:
            service.terminate()
            service.wait()
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return int(any(result[name] > limit for name, limit in GOAL.items()))


def start(root: Path) -> tuple[subprocess.Popen[bytes], str, str]:
    """Starts a service and returns it with its URL and token."""
    service = subprocess.Popen([sys.executable, "-m", "batchhvd.service", "--root", str(root)])
    while not (root / "endpoint").exists():
        if service.poll() is not None:
            raise SystemExit("the service did not start")
        time.sleep(0.05)
    return service, (root / "endpoint").read_text().strip(), (root / "token").read_text()


def prepare(url: str, token: str, root: Path) -> None:
    """Makes a job like the tutorial's that waits: its cluster's two nodes are taken by another one."""
    put(url, token, GROUP, {"location": "eastus"})
    put(url, token, WORKSPACE, {"location": "eastus"})
    put(url, token, f"{WORKSPACE}/experiments/e", None)
    scale = {"manual": {"targetNodeCount": 2}}
    settings = {"vmSize": "STANDARD_NC6", "userAccountSettings": {"adminUserName": "me"}, "scaleSettings": scale}
    put(url, token, f"{WORKSPACE}/clusters/c", {"properties": settings})
    put(url, token, ACCOUNT, {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"})
    key = request(connect(url), token, "POST", f"{ACCOUNT}/listKeys")["keys"][0]["value"]
    (root / "shares" / "benchaccount" / "share").mkdir(parents=True)
    for name in ("first", "j"):
        put(url, token, f"{WORKSPACE}/experiments/e/jobs/{name}", {"properties": job(key)})


def job(key: str) -> dict[str, Any]:
    """Returns the properties of a job that sleeps."""
    mount = {
        "accountName": "benchaccount",
        "azureFileUrl": "https://benchaccount.file.core.windows.net/share",
        "relativeMountPath": "share",
        "credentials": {"accountKey": key},
    }
    return {
        "cluster": {"id": f"{WORKSPACE}/clusters/c"},
        "nodeCount": 2,
        "customToolkitSettings": {"commandLine": "sleep 600"},
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/share",
        "mountVolumes": {"azureFileShares": [mount]},
    }


def put(url: str, token: str, path: str, body: Any) -> None:
    """Creates a resource."""
    request(connect(url), token, "PUT", path, body)


def connect(url: str) -> http.client.HTTPConnection:
    """Returns a connection to the service."""
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)


def request(connection: http.client.HTTPConnection, token: str, method: str, path: str, body: Any = None) -> Any:
    """Sends one request and returns the answer's JSON."""
    content = None if body is None else json.dumps(body)
    connection.request(method, path + VERSION, content, {"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status not in (200, 201, 202):
        raise SystemExit(f"{method} {path}: {answer.status} {text.decode()}")
    return json.loads(text) if text else None  # 202 has no body


def measure(url: str, token: str, clients: int, seconds: float) -> dict[str, Any]:
    """Returns how long GETs of the job took."""
    with multiprocessing.Pool(clients) as pool:
        pool.map(client, [(url, token, 0.5)] * clients, chunksize=1)  # a first round, not counted
        started = time.perf_counter()
        times = sorted(one for part in pool.map(client, [(url, token, seconds)] * clients, chunksize=1) for one in part)
        took = time.perf_counter() - started
    return {
        "clients": clients,
        "requests": len(times),
        "requests_per_second": round(len(times) / took),
        "median_ms": round(statistics.median(times) * 1000, 3),
        "p99_ms": round(times[int(len(times) * 0.99)] * 1000, 3),
        "worst_ms": round(times[-1] * 1000, 3),
        "goal": GOAL,
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def client(task: tuple[str, str, float]) -> list[float]:
    """Sends GETs for some seconds and returns how long each took."""
    url, token, seconds = task
    connection, times = connect(url), []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        request(connection, token, "GET", JOB)
        times.append(time.perf_counter() - begun)
    return times


if __name__ == "__main__":
    sys.exit(main())
