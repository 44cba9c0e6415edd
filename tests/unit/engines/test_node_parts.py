"""The pieces of the node runner that need no process."""

from __future__ import annotations

import ast
import http.client
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st

from batchhvd.engines import records
from batchhvd.engines.base import Status, Task, TaskState
from batchhvd.node import archive, place
from batchhvd.node.folder.document import NodeRecord, StopRecord, TaskDocument
from batchhvd.node.folder.records import declare
from batchhvd.node.folder.state import Launch, NodeState, PreparationPlace, StallAction, StopReason, Word
from batchhvd.node.output import LogFile, OutputPipe, last_lines, whole
from batchhvd.node.place import TaskPlace, expand, horovod_variables
from batchhvd.node.rendezvous import Rendezvous, reachable, rendezvous_variables
from batchhvd.node.sandbox.layer import layer_name
from batchhvd.node.watchdog import missing_ranks


def task(tmp_path: Path, **changes: Any) -> Task:
    values: dict[str, Any] = {"name": "t", "folder": str(tmp_path / "aufgabe ü"), "nodes": ("a", "b", "c")}
    values |= {"ranks": (2, 1, 2), "launch": "horovod", "command": "true", "logs": str(tmp_path / "logs"), **changes}
    return Task(**values)


def place_of(tmp_path: Path, index: int = 0, **changes: Any) -> TaskPlace:
    written = task(tmp_path, **changes)
    document: TaskDocument = json.loads(json.dumps(asdict(written)))
    return TaskPlace(document, Path(written.folder), index, loopback=True)


@pytest.mark.parametrize("path", sorted(archive.FOLDER.rglob("*.py")), ids=lambda path: path.stem)
def test_it_stands_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {alias.name for part in ast.walk(tree) if isinstance(part, ast.Import) for alias in part.names}
    names |= {part.module or "" for part in ast.walk(tree) if isinstance(part, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names if not name.startswith("batchhvd.node")} <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("data", "count"),
    [(b"", 0), (b"abc", 3), ("aü".encode(), 3), ("aü".encode()[:2], 1), ("a€".encode()[:3], 1), ("😀".encode()[:3], 0)],
)
def test_whole_characters(data: bytes, count: int) -> None:
    assert whole(data) == count


@given(st.text(max_size=30), st.integers(0, 120))
def test_no_character_is_ever_cut(text: str, cut: int) -> None:
    data = text.encode("utf-8", "replace")
    head = data[:cut]
    kept = head[: whole(head)]
    assert kept.decode() == data.decode()[: len(kept.decode())]
    assert len(head) - len(kept) < 4


@given(st.binary(max_size=40))
def test_what_is_not_text_is_not_held_back_for_long(data: bytes) -> None:
    assert len(data) - whole(data) < 4


def pipe(tmp_path: Path) -> tuple[int, OutputPipe, Path]:
    reading, writing = os.pipe()
    path = tmp_path / "aus gabe ü.txt"
    return writing, OutputPipe(reading, LogFile(path), bytearray()), path


def test_lines_are_written_whole_and_what_is_unfinished_after_a_while(tmp_path: Path) -> None:
    writing, stream, path = pipe(tmp_path)
    os.write(writing, b"one\ntw")
    stream.read(10.0)
    assert path.read_bytes() == b"one\n"
    stream.flush(10.1)
    assert path.read_bytes() == b"one\n"
    stream.flush(10.3)
    assert path.read_bytes() == b"one\ntw"
    os.write(writing, "o\nü".encode()[:-1])
    stream.read(10.4)
    stream.flush(11.0)
    assert path.read_bytes() == b"one\ntwo\n"  # half a character is no character
    os.write(writing, "ü".encode()[1:])
    os.close(writing)
    while stream.read(11.1):
        pass
    assert path.read_bytes() == "one\ntwo\nü".encode()
    os.close(stream.descriptor)


def test_the_last_lines_are_those_a_terminal_would_show() -> None:
    text = "a\n\n" + "".join(f"\r{n}/9" for n in range(1, 4)) + "\nTraceback\nboom"
    assert last_lines(text.encode()) == ["a", "1/9", "2/9", "3/9", "Traceback", "boom"]
    assert len(last_lines(b"x\n" * 100)) == 20


def test_variables_are_expanded_and_unknown_ones_stay() -> None:
    variables = {"A": "1", "AZ_B": "$A"}
    assert expand("$A ${A}b $AZ_B $C $$ $(x) ${D}", variables) == "1 1b $A $C $$ $(x) ${D}"


def test_the_first_to_stop_a_task_gives_the_reason(tmp_path: Path) -> None:
    assert declare(tmp_path, reason="rank", rank=2, exit_code=3)
    assert not declare(tmp_path, reason="cancelled")
    assert not records.declare(tmp_path, "cancelled")
    stop = records.stop(tmp_path)
    assert stop is not None
    assert (stop["reason"], stop["rank"], stop["exit_code"]) == ("rank", 2, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["stop.json"]


def test_variables_of_a_rank(tmp_path: Path) -> None:
    environment = {"AZ_BATCHAI_JOB_MOUNT_ROOT": "/m", "OWN": "$AZ_BATCHAI_JOB_MOUNT_ROOT/$AZ_BATCHAI_TASK_INDEX"}
    found = place_of(tmp_path, 1, environment=environment, secrets={"SECRET": "p$OWN"}).variables()
    assert found["OWN"] == "/m/1"
    assert found["SECRET"] == "p$OWN"  # as it is
    assert found["AZ_BATCHAI_JOB_TEMP"] == str(tmp_path / "aufgabe ü" / "temp" / "1")
    assert found["AZ_BATCHAI_JOB_TEMP_DIR"] == str(tmp_path / "aufgabe ü" / "temp")
    assert int(found["OMP_NUM_THREADS"]) >= 1
    assert found["OMP_NUM_THREADS"] == found["TF_NUM_INTRAOP_THREADS"]


def test_thread_counts_are_the_users_where_he_sets_them(tmp_path: Path) -> None:
    assert place_of(tmp_path, environment={"OMP_NUM_THREADS": "7"}).variables()["OMP_NUM_THREADS"] == "7"


def places(ranks: tuple[int, ...], tmp_path: Path) -> list[tuple[int, ...]]:
    found = []
    for index in range(len(ranks)):
        one = place_of(tmp_path, index, ranks=ranks, nodes=tuple(str(k) for k in range(len(ranks))))
        for rank, local, _ in one.commands():
            found_here = horovod_variables(rank, ranks, one.task["nodes"])
            assert int(found_here["HOROVOD_LOCAL_RANK"]) == local
            names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
            found.append(tuple(int(found_here[f"HOROVOD_{name}"]) for name in names))
    return found


def test_places_of_ranks_on_uneven_nodes(tmp_path: Path) -> None:
    assert places((2, 1, 2), tmp_path) == [
        (0, 5, 0, 2, 0, 3),
        (1, 5, 1, 2, 0, 2),
        (2, 5, 0, 1, 1, 3),
        (3, 5, 0, 2, 2, 3),
        (4, 5, 1, 2, 1, 2),
    ]


def test_a_node_may_have_no_rank(tmp_path: Path) -> None:
    assert places((1, 0), tmp_path) == [(0, 1, 0, 1, 0, 1)]


def test_the_launcher_of_mpi_passes_the_variables_on(tmp_path: Path) -> None:
    one = place_of(tmp_path, launch="mpi", command="prog $X", environment={"A": "1"}, secrets={"S": "2"})
    line = one.mpirun()
    assert line.startswith("mpirun -np 5 --hostfile ")
    assert "-x A -x S" in line
    assert line.endswith("; prog $X'")
    assert "AZ_BATCHAI_TASK_INDEX" in line
    assert "2" not in line.split()  # the value is not on the command line
    assert place_of(tmp_path, 1, launch="mpi").commands() == []


def test_gpus_are_dealt_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = {"AZ_BATCHAI_NUM_GPUS": "4"}
    one = place_of(tmp_path, environment=asks)
    monkeypatch.setattr(place, "gpus", lambda: [])
    assert one.devices(3, 1) == {"AZ_BATCHAI_NUM_GPUS": "0", "CUDA_VISIBLE_DEVICES": ""}
    monkeypatch.setattr(place, "gpus", lambda: ["/dev/nvidia0", "/dev/nvidia1"])
    assert one.devices(3, 1) == {"AZ_BATCHAI_NUM_GPUS": "2", "CUDA_VISIBLE_DEVICES": "1"}
    own = place_of(tmp_path, environment={**asks, "CUDA_VISIBLE_DEVICES": "0"})
    assert own.devices(3, 1)["CUDA_VISIBLE_DEVICES"] == "0"


def test_the_gpus_that_a_batch_system_chose_are_dealt_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = {"AZ_BATCHAI_NUM_GPUS": "4"}
    monkeypatch.setattr(place, "gpus", lambda: ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-7d")
    one = place_of(tmp_path, environment=asks)
    assert one.devices(4, 0) == {"AZ_BATCHAI_NUM_GPUS": "2", "CUDA_VISIBLE_DEVICES": "2"}
    assert one.devices(5, 1)["CUDA_VISIBLE_DEVICES"] == "GPU-7d"
    assert place_of(tmp_path, launch="mpi", environment=asks).devices(0, 0)["CUDA_VISIBLE_DEVICES"] == "2,GPU-7d"
    monkeypatch.setattr(place, "gpus", lambda: [])  # other makers' device files have other names
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1,3")
    assert one.devices(5, 1) == {"AZ_BATCHAI_NUM_GPUS": "2", "ROCR_VISIBLE_DEVICES": "3"}
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "")
    assert one.devices(5, 1) == {"AZ_BATCHAI_NUM_GPUS": "0", "ROCR_VISIBLE_DEVICES": ""}


def test_a_rank_that_no_node_has_is_refused() -> None:
    assert horovod_variables(2, (2, 1), ("a", "b"))["HOROVOD_HOSTNAME"] == "b"
    with pytest.raises(ValueError, match="rank must be below 3"):
        horovod_variables(3, (2, 1), ("a", "b"))


def ask(server: Rendezvous, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Asks as a rank does."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_the_meeting_point_answers_while_its_block_runs() -> None:
    with Rendezvous("127.0.0.1") as server:
        assert ask(server, "GET", "/global/0") == (404, b"")
        assert ask(server, "PUT", "/global/0", b"address") == (200, b"")
        assert ask(server, "GET", "/global/0") == (200, b"address")
        assert reachable("127.0.0.1", server.port, server.name)
        assert not reachable("127.0.0.1", server.port, "another")
    server.join(5)
    assert not server.is_alive()
    with pytest.raises(ConnectionRefusedError):
        ask(server, "GET", "/global/0")
    server.close()  # may be repeated


def test_where_ranks_meet_is_told_to_horovod() -> None:
    assert rendezvous_variables("10.0.0.1", 4711, "eth0") == {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "4711",
        "HOROVOD_GLOO_IFACE": "eth0",
    }


@pytest.mark.parametrize("word", [*StopReason, *NodeState, *TaskState, *Launch, *PreparationPlace, *StallAction])
def test_states_and_reasons_are_plain_words_on_disk(word: Word) -> None:
    plain = str.__str__(word)
    assert word == plain and {plain: 1}[word] == 1
    assert json.dumps({"word": word}) == json.dumps({"word": plain})
    assert f"{word} {str(word)}" == f"{plain} {plain}"


def test_the_meeting_point_keeps_and_clears_its_scopes() -> None:
    server = Rendezvous("127.0.0.1")
    assert server.answer("GET", "/global/0", b"") is None
    for rank in ("0", "1"):
        assert server.answer("PUT", f"/global/{rank}", rank.encode() * 3) == b""
    assert server.answer("GET", "/global/1", b"") == b"111"
    server.answer("DELETE", "/global/0", b"")
    assert server.answer("GET", "/global/0", b"") == b"000"  # the other rank may still have to read it
    server.answer("DELETE", "/global/1", b"")
    assert server.answer("GET", "/global/0", b"") is None  # ready for a second init
    server.listener.close()


def test_layers_are_named_by_all_that_decides_them(tmp_path: Path) -> None:
    base = {"PATH": "/usr/bin", "HOME": "/root", "TOKEN": "a"}
    name = layer_name("pip install x", base)
    assert name == layer_name("pip install x", {**base, "TOKEN": "b"})  # not named in the command
    assert name != layer_name("pip install y", base)
    assert layer_name("get $TOKEN", base) != layer_name("get $TOKEN", {**base, "TOKEN": "b"})
    (tmp_path / "bin").mkdir()
    own = {**base, "PATH": f"{tmp_path}/bin:/usr/bin"}
    before = layer_name("pip install x", own)
    (tmp_path / "bin" / "pip").touch()
    assert layer_name("pip install x", own) != before  # something was installed meanwhile


def record(state: str = "ended", ended: float = 2.0) -> NodeRecord:
    return {
        "index": 0,
        "node": "a",
        "host": "127.0.0.1",
        "pid": 1,
        "state": state,
        "started": 1.0,
        "ended": ended if state == "ended" else None,
        "preparation": None,
        "ranks": [],
        "reason": "rank",
        "error": "",
    }


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ([None, None], "queued"),
        ([record("preparing"), None], "preparing"),
        ([record("preparing"), record("running")], "running"),
        ([record("running"), record()], "running"),
        ([record(), None], "running"),
        ([record(), record()], "succeeded"),
    ],
)
def test_how_a_task_stands(found: list[NodeRecord | None], state: str) -> None:
    assert records.status(None, found).state == state


def test_how_a_stopped_task_stands() -> None:
    stop: StopRecord = {"reason": "rank", "node": "b", "rank": 1, "exit_code": 3, "error": "e", "tail": ["x"]}
    assert records.status(stop, [record(), record("running")]).state == "running"  # until all have ended
    assert records.status(stop, [record(), record(ended=5.0)]) == Status(
        state="failed",
        reason="rank",
        node="b",
        rank=1,
        exit_code=3,
        error="e",
        tail=("x",),
        started=1.0,
        ended=5.0,
    )
    assert records.status({**stop, "reason": "cancelled"}, [record()]).state == "cancelled"


def test_the_task_file_is_its_owners_only(tmp_path: Path) -> None:
    written = task(tmp_path, secrets={"S": "x"})
    path = written.write()
    assert path.stat().st_mode & 0o777 == 0o600
    assert Task.read(written.folder) == written
    assert json.loads(path.read_text())["secrets"] == {"S": "x"}


def test_a_line_that_was_cut_off_ends_before_what_comes_next(tmp_path: Path) -> None:
    writing, stream, path = pipe(tmp_path)
    os.write(writing, b"one\ntw")
    os.close(writing)
    while stream.read(10.0):
        pass
    stream.end_line()
    stream.end_line()
    assert path.read_bytes() == b"one\ntw\n"
    os.close(stream.descriptor)


STALL = """[2026-11-28 16:20:31.104312: W /horovod/common/stall_inspector.cc:107] One or more tensors were submitted \
to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 20 \
seconds. This may indicate that different ranks are trying to submit different tensors or that only subset of ranks is \
submitting tensors, which will cause deadlock.\x20
Missing ranks:
1: [batchhvd.optimizer0.float32_0, batchhvd.optimizer0.float32_1 ...]
"""


@pytest.mark.parametrize(
    ("output", "which"),
    [
        (f"epoch 1\n{STALL}epoch 2\n", "rank 1"),
        (f"{STALL}3!: [x]\n", "ranks 1, 3"),
        (f"{STALL}{STALL.replace('1: [', '0: [')}", "rank 0"),
    ],
)
def test_ranks_that_horovod_waits_for_are_named(output: str, which: str) -> None:
    assert missing_ranks(output) == f"the other ranks have waited for {which} for more than 20 s, says Horovod"


def test_other_output_names_no_ranks() -> None:
    assert missing_ranks("Missing ranks:\n") == missing_ranks("loss: 0.5\n") == ""
