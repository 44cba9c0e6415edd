"""Measures the file service with Microsoft's storage client, and writes benchmarks/results/transfer.json.

    python benchmarks/transfer.py                  everything: some minutes and 3 GiB of disk
    python benchmarks/transfer.py --quick          the same at a tenth of the size
    python benchmarks/transfer.py --only large     one part: large, listing, small, deletion, memory, parallel

The yardstick is a server that throws uploads away and sends zeros: the same HTTP stack and client, no disk and no
signatures to check. Both are measured in turns, so that a busy machine slows both. Rates are the best of some rounds,
because other work can only make a round slower; the medians and the load stand beside them, and what is counted in the
processor's seconds is hardly touched by other work.
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
    pid: int
    root: Path

    def busy(self) -> float:
        """Returns the processor's seconds that the serving process has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self) -> float:
        """Returns the most memory that the serving process has had since the last call, in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

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
        spent: dict[str, list[float]] = {"service": [], "discard": []}
        for _ in range(ROUNDS):
            for prefix, target in (("", place), ("discard ", nowhere)):
                before = target.busy()
                up, down, digest = _move(target, data)
                spent[prefix.strip() or "service"].append((target.busy() - before) * 1024 * MIB / size)
                rates[f"{prefix}up"].append(size / MIB / up)
                rates[f"{prefix}down"].append(size / MIB / down)
                if not prefix and digest != hashlib.sha256(data).hexdigest():
                    raise SystemExit("the file that came back is not the one that was sent")
    best = {name: round(max(values), 1) for name, values in rates.items()}
    median = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    shares = {f"{way} share": round(best[way] / best[f"discard {way}"], 2) for way in ("up", "down")}
    rest = {
        "server's CPU seconds per GiB up and down": {name: round(min(values), 2) for name, values in spent.items()},
        "seconds per GiB only to write it to the same disk": _written(place, size),
    }
    return {"bytes": size, "equal digest": True, **shares, "MiB per second": {"best": best, "median": median}, **rest}


def _written(place: Place, size: int) -> dict[str, float]:
    """Returns what the system takes to write as many bytes, in pieces of 4 MiB, into a new file beside the shares.

    A virtual machine gives memory that was free for a while back to its host, and pays for it when it is used again:
    "after a pause" is such a case.
    """
    seconds = {}
    for name, pause in (("at once", 0.0), ("again", 0.0), ("after a pause", 6.0)):
        time.sleep(pause)
        start = time.perf_counter()
        with open(place.root / "written", "wb", buffering=0) as file:
            for _ in range(size // (4 * MIB)):
                file.write(bytes(4 * MIB))
        seconds[name] = round((time.perf_counter() - start) * 1024 * MIB / size, 2)
        (place.root / "written").unlink()
    return seconds


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
    told: dict[str, Any] = {"files": count, "complete": True}
    told["seconds"] = {"best": min(seconds), "median": statistics.median(seconds)}
    return {**told, "5,000 with all includes: service's CPU seconds": _all_includes(place, scale)}


def _all_includes(place: Place, scale: float) -> float:
    place.share().create_directory("half")
    for number in range(int(5000 * scale)):
        (place.root / "shares" / ACCOUNT / SHARE / "half" / f"file {number:05}.txt").touch()
    directory, spent = place.share().get_directory_client("half"), []
    for _ in range(ROUNDS):
        busy = place.busy()
        for _ in range(10):
            list(directory.list_directories_and_files(include=["timestamps", "Etag", "Attributes", "PermissionKey"]))
        spent.append((place.busy() - busy) / 10)
    return round(min(spent) / scale, 3)


def small(place: Place, scale: float) -> dict[str, Any]:
    """Uploads small files of 4 KiB with 8 workers, as threads of one process and as processes, in turns with the other.

    The limit is the client: it takes two requests a file and more of the processor than the service, and the threads of
    one process have one processor among them.
    """
    count = int(2000 * scale)
    found: dict[str, Any] = {"files": count, "bytes each": 4096}
    with discard() as nowhere:
        for kind in ("threads", "processes"):
            for name, figures in _small(kind, {"service": place, "discard": nowhere}, count).items():
                found.setdefault(name, {})[kind] = figures
    return found


def _small(kind: str, places: dict[str, Place], count: int) -> dict[str, Any]:
    rates: dict[str, list[float]] = {name: [] for name in places}
    served: dict[str, list[float]] = {name: [] for name in places}
    asked: list[float] = []
    pool = ThreadPoolExecutor(8) if kind == "threads" else ProcessPoolExecutor(8, mp_context=get_context("spawn"))
    with pool:
        list(pool.map(upload_small, [places["service"]] * 8, [[] for _ in range(8)]))  # the workers have started
        for turn in range(ROUNDS):
            places["service"].share().create_directory(f"{kind}-{turn}")
            parts = [[f"{kind}-{turn}/{number}.bin" for number in range(worker, count, 8)] for worker in range(8)]
            for name, place in places.items():
                start, busy, own = time.perf_counter(), place.busy(), time.process_time()
                list(pool.map(upload_small, [place] * 8, parts))
                rates[name].append(round(count / (time.perf_counter() - start), 1))
                served[name].append(round(1000 * (place.busy() - busy) / count, 2))
                asked.append(round(1000 * (time.process_time() - own) / count, 2))
    told: dict[str, Any] = {
        "files per second": {"best": max(rates["service"]), "median": statistics.median(rates["service"])},
        "to the server that discards": {"best": max(rates["discard"]), "median": statistics.median(rates["discard"])},
        "share": round(max(rates["service"]) / max(rates["discard"]), 2),
        "server's CPU ms per file": {name: min(values) for name, values in served.items()},
    }
    return {**told, "client's CPU ms per file": min(asked)} if kind == "threads" else told


def upload_small(place: Place, names: list[str]) -> None:
    """Uploads files one after another."""
    share = place.share()
    for name in names:
        share.get_file_client(name).upload_file(_content(name, 4096))


def deletion(place: Place, scale: float) -> dict[str, Any]:
    """Deletes shares with 10,000 files: how long the caller waits, until the files are gone, what it costs."""
    count, waits, costs, gone = int(10_000 * scale), [], [], []
    for turn in range(3):
        share = ShareClient.from_share_url(
            f"{place.url}/{ACCOUNT}/deleted{turn}", credential=place.key, use_env_settings=False, retry_total=0
        )
        share.create_share()
        folder = place.root / "shares" / ACCOUNT / share.share_name
        for number in range(count):
            (folder / f"{number}.bin").write_bytes(b"x" * 100)
        busy, start = place.busy(), time.perf_counter()
        share.delete_share()
        waits.append(round(time.perf_counter() - start, 4))
        while any((place.root / "shares" / ".files" / "trash").iterdir()):
            time.sleep(0.01)
        gone.append(round(time.perf_counter() - start, 3))
        costs.append(round(place.busy() - busy, 3))
    return {"files": count, "seconds to the caller": max(waits), "until they are gone": max(gone), "CPU s": min(costs)}


def memory(place: Place, scale: float) -> dict[str, Any]:
    """Compares the most memory that the service has for a large file and a long listing with that for small ones."""
    share = place.share()
    found: dict[str, float] = {}
    share.create_directory("few")
    share.create_directory("lots")
    for folder, count in (("few", 100), ("lots", int(50_000 * scale))):
        for number in range(count):
            (place.root / "shares" / ACCOUNT / SHARE / folder / f"file {number:06}.bin").touch()
    for name, act in (
        ("file of 16 MiB", lambda: _through(place, 16 * MIB)),
        ("file of 1 GiB", lambda: _through(place, int(1024 * scale) * MIB)),
        ("listing of 100 files", lambda: list(share.list_directories_and_files("few", include=["timestamps", "Etag"]))),
        ("listing of 50,000", lambda: list(share.list_directories_and_files("lots", include=["timestamps", "Etag"]))),
    ):
        act()
        place.peak()
        act()
        found[name] = round(place.peak(), 1)
    return {"peak of the service's memory, MiB": found}


def _through(place: Place, size: int) -> None:
    file = place.share().get_file_client("memory.bin")
    file.upload_file(bytes(size), max_concurrency=4)
    for _ in file.download_file(max_concurrency=4).chunks():
        pass


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
        place = Place(url, keys[0]["value"], json.loads((root / "service.json").read_text())["pid"], root)
        place.share().create_share()
        yield place


@contextmanager
def discard() -> Iterator[Place]:
    """Runs the server that throws away what it gets and sends zeros."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "url"
        command = [sys.executable, __file__, "--discard", "--output", str(ready)]
        with _process(command, lambda: ready.is_file() and ready.read_text().endswith("\n")) as pid:
            yield Place(ready.read_text().strip(), base64.b64encode(b"no matter").decode(), pid, Path(folder))


@contextmanager
def _process(command: list[str], ready: Any) -> Iterator[int]:
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 60
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[1:4]} did not start")
            time.sleep(0.02)
        yield process.pid
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


PARTS = (large, listing, small, deletion, memory, parallel)

if __name__ == "__main__":
    main()
