"""Log streams against the real service: cut connections, a killed service, the time until a byte arrives."""

from __future__ import annotations

import signal
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchhvd
from batchhvd import NotFoundError
from batchhvd.wire.connection import Connection
from tests.support.proxy import Cutter, through

LINES = "plain ascii | ä ö ü ß | 日本語のテキスト | 😀🎉 | Ωμέγα | 10%\r20%\r30%"

WRITER = """
import sys, time
line, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
data = "".join(f"{number} {line}\\n" for number in range(size // len(line.encode()))).encode()
step = len(data) // 50
for start in range(0, len(data), step):
    sys.stdout.buffer.write(data[start : start + step])
    sys.stdout.buffer.flush()
    time.sleep(seconds / 50)
"""


@pytest.fixture(scope="module")
def writer(place: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ä script") / "write.py"
    path.write_text(WRITER)
    place.share.upload(path)
    return "python3 -u $AZ_BATCHAI_JOB_MOUNT_ROOT/data/write.py"


@pytest.fixture
def cutter(service: Any) -> Iterator[Cutter]:
    proxy = Cutter(lambda: service.url, most=40_000)
    yield proxy
    proxy.close()


def test_a_hundred_cuts_lose_nothing(service: Any, place: Any, writer: str, cutter: Cutter, tmp_path: Path) -> None:
    job = place.run(f"{writer} '{LINES}' 2000000 1", name="cut")
    cut = through(cutter, service.root, tmp_path / "the röot")
    copy = cut.group(place.group.name).workspace("work").experiment("tries").job("cut")
    text = "".join(copy.stream("stdout.txt", timeout=120))
    job.wait(timeout=10)
    (file,) = [file for file in job.files() if file.name == "stdout.txt"]
    assert text.encode() == file.read()
    assert len(text.encode()) > 1_900_000 and "\ufffd" not in text
    assert cutter.cuts >= 100


def test_the_service_is_killed_and_started_again(launch: Any, make_place: Any, tmp_path: Path) -> None:
    running = launch()
    place = make_place(batchhvd.local(running.root), "kept")
    path = tmp_path / "write.py"
    path.write_text(WRITER)
    place.share.upload(path)
    job = place.run(f"python3 -u $AZ_BATCHAI_JOB_MOUNT_ROOT/data/write.py '{LINES}' 200000 2")
    stream = job.stream("stdout.txt", timeout=60)
    text = next(stream)
    old = running.url
    running.process.send_signal(signal.SIGKILL)
    running.process.wait()
    threading.Timer(0.5, lambda: launch(root=running.root)).start()
    text += "".join(stream)
    assert job.wait(timeout=10).state == "succeeded"
    assert place.group._connection.endpoint != old
    (file,) = [file for file in job.files() if file.name == "stdout.txt"]
    assert text.encode() == file.read() and len(text) > 100_000


def test_another_process_goes_on_at_the_cursor(place: Any, writer: str) -> None:
    job = place.run(f"{writer} '{LINES}' 300000 0.5")
    first = job.stream()
    text = next(first)
    again = place.experiment.job(job.name).stream(cursor=first.cursor)
    text += "".join(again)
    (file,) = [file for file in job.files() if file.name == "stdout.txt"]
    assert text.encode() == file.read()
    assert again.cursor == file.size
    assert list(job.stream(cursor=again.cursor)) == []


def test_a_byte_arrives_soon(place: Any) -> None:
    job = place.run("for i in $(seq 8); do date +%s.%N; sleep 0.2; done")
    late = [time.time() - float(text.split()[-1]) for text in job.stream()]
    assert len(late) > 4
    assert statistics.median(late) < 0.3


def test_one_request_is_held_instead_of_many(place: Any, service: Any) -> None:
    blocker = place.run("sleep 1.5", nodes=2)
    job = place.run("sleep 0.8; echo done")
    seen: list[str] = []
    took = _time_requests(job._connection)
    assert "".join(job.stream(report=seen.append)) == "done\n"
    assert len(took) < 15
    assert [seconds for seconds in took if seconds > 0.4]
    assert any(line.startswith(f"job {job.name!r} is queued, ") for line in seen)
    assert seen[-1] == f"job {job.name!r} is succeeded"
    blocker.wait(timeout=10)


def _time_requests(connection: Connection) -> list[float]:
    """Returns a list that takes the seconds of every request from now on."""
    from batchhvd.wire.loopback import LocalTransport

    took: list[float] = []
    for client in (connection.batchai, connection.links):
        pipeline = client._client._pipeline if hasattr(client, "_client") else client._pipeline
        transport = pipeline._transport
        assert isinstance(transport, LocalTransport)
        send = transport.send

        def timed(request: Any, *, _send: Any = send, **options: Any) -> Any:
            started = time.monotonic()
            answer = _send(request, **options)
            took.append(time.monotonic() - started)
            return answer

        transport.send = timed  # type: ignore[method-assign]  # it looks at the clock, and passes on
    return took


def test_what_a_job_never_wrote(place: Any) -> None:
    job = place.run("true").wait(timeout=30)
    with pytest.raises(NotFoundError, match=r"without writing 'stdot.txt'. Its files are: .*stdout\.txt"):
        list(job.stream("stdot.txt"))
    assert list(job.stream("stdout.txt")) == []
    failed = place.run("exit 4").wait("ended", timeout=30)
    assert list(failed.stream("stdot.txt")) == []
