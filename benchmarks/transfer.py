"""Measures the file service with Microsoft's storage client, and writes benchmarks/results/transfer.json.

    python benchmarks/transfer.py                  everything: some minutes and 3 GiB of disk
    python benchmarks/transfer.py --quick          the same at a tenth of the size
    python benchmarks/transfer.py --only large     one part: large, listing, small, parallel

The yardstick for large files is a server that throws uploads away and sends zeros: the same HTTP stack and client,
no disk and no signatures to check. Both are measured in turns, so that a busy machine slows both. Rates are the best of
some rounds, because other work can only make a round slower; the medians and the load stand beside them.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
from attrs import frozen
from azure.storage.fileshare import ShareClient

GROUP = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/bench"
ACCOUNT, SHARE = "benchmarks", "transfer"
MIB = 1 << 20
ROUNDS = 5


@frozen
class Place:
    """A share to move bytes to: an endpoint, a key, and the process that serves it."""

    url: str
    key: str
    pid: int = 0

    def busy(self) -> float:
        """Returns the processor's seconds that the serving process has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def share(self) -> ShareClient:
        """Returns a client; failures count, so it tries nothing twice."""
        return ShareClient(
            f"{self.url}/{ACCOUNT}", SHARE, credential=self.key, retry_total=0, use_env_settings=False, read_timeout=120
        )


def main() -> None:
    """Runs what was asked for and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size")
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS], help="one part")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "transfer.json")
    parser.add_argument("--note", default="", help="what else there is to know about this run, kept with its figures")
    parser.add_argument("--discard", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.discard:
        return serve_discard()
    results = json.loads(options.output.read_text()) if options.only and options.output.is_file() else {}
    results["machine"] = machine(options.quick)
    with tempfile.TemporaryDirectory(prefix="batchhvd bench ü ") as folder, service(Path(folder)) as place:
        for part in PARTS:
            if options.only in (None, part.__name__):
                load = {
                    "load average": round(os.getloadavg()[0], 1),
                    **({"note": options.note} if options.note else {}),
                }
                results[part.__name__] = {**part(place, 0.1 if options.quick else 1.0), **load}
                print(json.dumps({part.__name__: results[part.__name__]}), flush=True)
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(results, indent=2) + "\n")
    return None


def large(place: Place, scale: float) -> dict[str, Any]:
    """Moves 1 GiB up and down with four connections, against the server that discards, in turns."""
    size = int(1024 * scale) * MIB
    data = random.Random(1).randbytes(64 * MIB) * (size // (64 * MIB) + 1)
    data = data[:size]
    with discard() as nowhere:
        rates: dict[str, list[float]] = {name: [] for name in ("up", "down", "discard up", "discard down")}
        for _ in range(ROUNDS):
            for prefix, target in (("", place), ("discard ", nowhere)):
                up, down, digest = _move(target, data)
                rates[f"{prefix}up"].append(size / MIB / up)
                rates[f"{prefix}down"].append(size / MIB / down)
                if not prefix and digest != hashlib.sha256(data).hexdigest():
                    raise SystemExit("the file that came back is not the one that was sent")
    best = {name: round(max(values), 1) for name, values in rates.items()}
    median = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    shares = {f"{way} share": round(best[way] / best[f"discard {way}"], 2) for way in ("up", "down")}
    return {"bytes": size, "equal digest": True, **shares, "MiB per second": {"best": best, "median": median}}


def _move(place: Place, data: bytes) -> tuple[float, float, str]:
    file = place.share().get_file_client("large.bin")
    start = time.perf_counter()
    file.upload_file(data, max_concurrency=4)
    middle = time.perf_counter()
    received = file.download_file(max_concurrency=4).readall()
    end = time.perf_counter()
    return middle - start, end - middle, hashlib.sha256(received).hexdigest()


def listing(place: Place, scale: float) -> dict[str, Any]:
    """Lists one directory of 10,000 small files completely."""
    share, count = place.share(), int(10_000 * scale)
    share.create_directory("many")
    names = [f"file {number:05} ü.txt" for number in range(count)]
    directory = share.get_directory_client("many")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: directory.get_file_client(name).create_file(0), names))
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        found = [entry["name"] for entry in directory.list_directories_and_files(include=["timestamps", "Etag"])]
        seconds.append(round(time.perf_counter() - start, 3))
        if found != names:
            raise SystemExit(f"{len(found)} of {count} files were listed")
    return {"files": count, "complete": True, "seconds": {"best": min(seconds), "median": statistics.median(seconds)}}


def small(place: Place, scale: float) -> dict[str, Any]:
    """Uploads small files of 4 KiB with 8 workers, as threads of one process and as processes."""
    count, share = int(1000 * scale), place.share()
    rates: dict[str, list[float]] = {"threads": [], "processes": []}
    spent = []
    for kind, values in rates.items():
        pool = ThreadPoolExecutor(8) if kind == "threads" else ProcessPoolExecutor(8, mp_context=get_context("spawn"))
        with pool:
            list(pool.map(upload_small, [place] * 8, [[] for _ in range(8)]))  # the workers have started
            for turn in range(ROUNDS):
                share.create_directory(f"{kind}-{turn}")
                parts = [[f"{kind}-{turn}/{number}.bin" for number in range(worker, count, 8)] for worker in range(8)]
                start, busy = time.perf_counter(), place.busy()
                list(pool.map(upload_small, [place] * 8, parts))
                values.append(round(count / (time.perf_counter() - start), 1))
                spent.append(round(1000 * (place.busy() - busy) / count, 2))
    found = {kind: {"best": max(values), "median": statistics.median(values)} for kind, values in rates.items()}
    return {"files": count, "bytes each": 4096, "files per second": found, "service's CPU ms per file": min(spent)}


def upload_small(place: Place, names: list[str]) -> None:
    """Uploads files one after another."""
    share = place.share()
    for name in names:
        share.get_file_client(name).upload_file(_content(name, 4096))


def parallel(place: Place, scale: float) -> dict[str, Any]:
    """Lets 64 clients write, read, list and delete for a minute, and checks every byte that they read."""
    place.share().create_directory("parallel")
    until = time.time() + 60 * scale
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        tallies = list(pool.map(clients, [place] * 2, [until] * 2, [0, 32]))
    return {"clients": 64, **{name: sum(tally[name] for tally in tallies) for name in tallies[0]}}


def clients(place: Place, until: float, first: int) -> dict[str, int]:
    """Runs 32 clients as threads and returns what they did."""
    tally, lock = {"operations": 0, "bytes": 0, "errors": 0, "wrong": 0}, threading.Lock()

    def work(number: int) -> None:
        share, chance = place.share(), random.Random(number)
        while time.time() < until:
            done = _round(share, f"parallel/{number}-{chance.randrange(4)}.bin", chance)
            with lock:
                for name, value in done.items():
                    tally[name] += value

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work, range(first, first + 32)))
    return tally


def _round(share: ShareClient, name: str, chance: random.Random) -> dict[str, int]:
    """Uploads a file, reads it and a range of it, lists, deletes; returns what happened."""
    data = _content(name + str(chance.random()), chance.choice([0, 1, 1000, 65_537, 300_000, 4 * MIB + 1]))
    file, at = share.get_file_client(name), chance.randrange(max(len(data), 1))
    try:
        file.upload_file(data, max_concurrency=2)
        read = file.download_file().readall()
        part = file.download_file(offset=at, length=100).readall() if data else b""
        listed = {entry["name"] for entry in share.list_directories_and_files("parallel", name_starts_with=name[9:])}
        file.delete_file()
    except Exception as error:  # counted and shown; the other clients go on
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        return {"errors": 1}
    right = read == data and part == data[at : at + 100] and name[9:] in listed
    return {"operations": 5, "bytes": 2 * len(data) + len(part), "wrong": 0 if right else 1}


def _content(seed: str, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


@contextmanager
def service(root: Path) -> Iterator[Place]:
    """Runs the service with an account and a share."""
    command = [sys.executable, "-m", "batchhvd.service", "--root", str(root)]
    with _process(command, lambda: (root / "endpoint").is_file()):
        url = (root / "endpoint").read_text().strip()
        head = {"Authorization": f"Bearer {(root / 'token').read_text().strip()}"}
        with httpx.Client(base_url=url, headers=head, trust_env=False, timeout=30) as arm:
            account = f"{GROUP}/providers/Microsoft.Storage/storageAccounts/{ACCOUNT}"
            arm.put(f"{GROUP}?api-version=2018-05-01", json={"location": "eastus"}).raise_for_status()
            body = {"location": "eastus", "sku": {"name": "Standard_LRS"}, "kind": "Storage"}
            arm.put(f"{account}?api-version=2018-07-01", json=body).raise_for_status()
            keys = arm.post(f"{account}/listKeys?api-version=2018-07-01").raise_for_status().json()["keys"]
        place = Place(url, keys[0]["value"], json.loads((root / "service.json").read_text())["pid"])
        place.share().create_share()
        yield place


@contextmanager
def discard() -> Iterator[Place]:
    """Runs the server that throws away what it gets and sends zeros."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "url"
        command = [sys.executable, __file__, "--discard", "--output", str(ready)]
        with _process(command, lambda: ready.is_file() and ready.read_text().endswith("\n")):
            yield Place(ready.read_text().strip(), base64.b64encode(b"no matter").decode())


@contextmanager
def _process(command: list[str], ready: Any) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 60
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[1:4]} did not start")
            time.sleep(0.02)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def serve_discard() -> None:
    """Serves the yardstick: bodies are read and forgotten, ranges of one file of any size are zeros."""
    import socket

    import uvicorn

    size, zeros = 0, bytes(MIB)
    written = [(b"etag", b'"1"'), (b"last-modified", b"Tue, 12 Feb 2019 19:33:20 GMT"), (b"content-length", b"0")]

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        nonlocal size
        headers = dict(scope["headers"])
        more = True
        while more:
            more = (await receive()).get("more_body", False)
        if scope["method"] == "PUT":
            size = int(headers.get(b"x-ms-content-length", size))
            await send({"type": "http.response.start", "status": 201, "headers": written})
            await send({"type": "http.response.body", "body": b""})
            return
        first, last = (int(part) for part in headers[b"x-ms-range"].removeprefix(b"bytes=").split(b"-"))
        last = min(last, size - 1)
        length = last - first + 1
        told = [(b"content-range", f"bytes {first}-{last}/{size}".encode()), (b"content-length", str(length).encode())]
        await send({"type": "http.response.start", "status": 206, "headers": written[:2] + told})
        for start in range(0, length, MIB):
            piece = zeros[: min(MIB, length - start)]
            await send({"type": "http.response.body", "body": piece, "more_body": start + MIB < length})

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    Path(sys.argv[sys.argv.index("--output") + 1]).write_text(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
    config = uvicorn.Config(answer, http="httptools", loop="asyncio", lifespan="off", log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])


def machine(quick: bool) -> dict[str, Any]:
    """Returns what decides the figures: the machine, the versions, how busy it was."""
    packages = ("azure-storage-file-share", "uvicorn", "httptools", "batchhvd")
    model = [
        line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "processor": model[0] if model else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "quick": quick,
    }


PARTS = (large, listing, small, parallel)

if __name__ == "__main__":
    main()
