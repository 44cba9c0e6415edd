"""Nodes of clusters can be entered by SSH, idle ones and those of jobs, with OpenSSH's own client."""

from __future__ import annotations

import http.client
import http.server
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchhvd
from tests.support.entered import NEEDED, Entered
from tests.support.waiting import until

pytestmark = NEEDED
LONG = 20_000


@pytest.fixture(scope="module")
def entered(start: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entered]:
    folder = tmp_path_factory.mktemp("the lögins")
    running = start(folder / "root")
    try:
        yield Entered(running, folder / "client")
    finally:  # also when a client cannot be made
        running.stop()


@pytest.fixture(scope="module")
def job(entered: Entered) -> Iterator[str]:
    variables = [{"name": "COLOUR", "value": "blue"}]
    path = entered.job("waits", f"echo begun; sleep {LONG}", environmentVariables=variables)
    until(lambda: entered.output(path) == "begun\n")
    until(lambda: entered.run("@NODE", "true", node=1).returncode == 0)  # the other node may begin a little later
    yield path
    entered.running.finish(entered.running.call("DELETE", path))


def test_an_idle_node_runs_commands(entered: Entered) -> None:
    names = [login["nodeId"] for login in entered.logins()]
    found = entered.run("@NODE", 'echo "$AZ_BATCHAI_NODE_NAME"; cat; echo err >&2; exit 7', text="in\n", node=1)
    assert (found.returncode, found.stdout, found.stderr) == (7, f"{names[1]}\nin\n", "err\n")


def test_the_list_of_nodes_tells_the_fingerprint_that_ssh_sees(entered: Entered) -> None:
    told = {login["batchhvd"]["hostKey"] for login in entered.logins()}
    scan = ["ssh-keyscan", "-t", "ed25519", "-p", str(entered.port()), "127.0.0.1"]
    seen = subprocess.run(scan, capture_output=True, text=True, timeout=60, check=True).stdout
    shown = subprocess.run(["ssh-keygen", "-lf", "-"], input=seen, capture_output=True, text=True, check=True).stdout
    assert told == {shown.split()[1]}
    with batchhvd.local(entered.running.root) as session:  # and the client reads it
        group = session.group(entered.group.rpartition("/")[2])
        found = group.workspace("w").cluster("c").logins()
    assert {login.host_key for login in found} == told and found[0].port == entered.port()


def test_a_node_of_a_job_is_seen_as_the_job_sees_it(entered: Entered, job: str) -> None:
    line = 'echo "$COLOUR $AZ_BATCHAI_JOB_NAME $AZ_BATCHAI_TASK_INDEX"; ls "$AZ_BATCHAI_JOB_MOUNT_ROOT"'
    found = entered.run("@NODE", line, node=1)
    assert (found.returncode, found.stdout) == (0, "blue waits 1\nm\n"), found.stderr


def test_what_is_large_comes_whole_in_both_directions(entered: Entered) -> None:
    text = "0123456789abcdef" * (1 << 18)  # 4 MiB
    found = entered.run("@NODE", "cat", text=text)
    assert found.returncode == 0 and found.stdout == text
    assert entered.run("@NODE", "exec 0<&-; sleep 0.3; echo end", text=text).stdout == "end\n"


def test_a_shell_has_a_terminal_with_its_size_and_signals(entered: Entered) -> None:
    command = entered.command("-tt", "@NODE")
    own, theirs = pty.openpty()
    os.system(f"stty rows 31 cols 97 < {os.ttyname(theirs)}")
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        os.write(own, b"PS1=; stty size; tty; echo re''ady\n")
        seen = read(own, b"ready")
        assert b"31 97" in seen and b"/dev/pts/" in seen
        os.write(own, b"stty -echo; sleep 1000\n")
        time.sleep(0.5)
        os.write(own, b"\x03")  # Ctrl-C ends the sleep and not the shell
        os.write(own, b"echo al''ive $?\n")
        assert b"alive 130" in read(own, b"alive ")
        os.write(own, b"exit 5\n")
        assert process.wait(60) == 5
    os.close(own)


def read(descriptor: int, end: bytes) -> bytes:
    """Reads from a terminal until a line has a word, and to the end of that line."""
    seen = b""
    deadline = time.monotonic() + 60
    while not re.search(re.escape(end) + rb".*\n", seen) and time.monotonic() < deadline:
        seen += os.read(descriptor, 4096)
    return seen


def test_scp_and_sftp_copy_files(entered: Entered, job: str, tmp_path: Path) -> None:
    (tmp_path / "täxt").write_bytes(os.urandom(300_000))
    there = entered.run("@NODE", "pwd").stdout.strip()
    for number, option in enumerate(("-s", "-O")):  # over SFTP, and as before OpenSSH 9
        sent = entered.run(option, str(tmp_path / "täxt"), f"@NODE:copy{number}", program="scp")
        assert sent.returncode == 0, sent.stderr
        assert Path(there, f"copy{number}").read_bytes() == (tmp_path / "täxt").read_bytes()
    batch = tmp_path / "batch"
    batch.write_text(f"get copy0 {tmp_path}/back\nmkdir new\nrename copy0 new/moved\nls new\n")
    got = entered.run("-b", str(batch), "@NODE", program="sftp")
    assert got.returncode == 0 and "new/moved" in got.stdout, got.stderr
    assert (tmp_path / "back").read_bytes() == (tmp_path / "täxt").read_bytes()


def test_ports_of_the_node_are_forwarded_and_no_others(entered: Entered) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as free:
        local = free.getsockname()[1]
    way = f"{local}:localhost:{server.server_port}"
    with subprocess.Popen(entered.command("-N", "-L", way, "@NODE"), stderr=subprocess.PIPE) as process:
        try:
            until(lambda: socket.socket().connect_ex(("127.0.0.1", local)) == 0)
            with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=30) as answer:
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    ask = "GET / HTTP/1.0\r\n\r\n"
    within, beyond = (
        entered.run("-W", f"{host}:{server.server_port}", "@NODE", text=ask) for host in ("127.0.0.1", "0.0.0.0")
    )
    server.shutdown()
    assert "200 OK" in within.stdout
    assert (beyond.stdout, beyond.stderr) == ("", "stdio forwarding failed\n")
    refused = entered.run("-o", "ExitOnForwardFailure=yes", "-N", "-R", "0:localhost:1", "@NODE")
    assert refused.returncode == 255


def test_a_session_ends_with_its_job(entered: Entered) -> None:
    # On the other nodes of the module's cluster jobs may run; this one has a cluster of its own.
    entered.cluster("own")
    path = entered.job("ends", f"sleep {LONG}", cluster={"id": f"{entered.workspace}/clusters/own"})
    until(lambda: entered.state(path) == "running")
    port = entered.port(cluster="own")
    command = [
        word if word != str(entered.port()) else str(port)
        for word in entered.command("@NODE", f"echo in; sleep {LONG}")
    ]
    until(lambda: subprocess.run([*command[:-1], "true"], capture_output=True, check=False).returncode == 0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "in\n"
        entered.running.finish(entered.running.call("DELETE", path))
        assert process.wait(60) == 128 + signal.SIGHUP
        assert process.stderr and "the node has ended" in process.stderr.read()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "in\n"
        entered.running.finish(entered.running.call("DELETE", f"{entered.workspace}/clusters/own"))
        assert process.wait(60) != 0
    assert socket.socket().connect_ex(("127.0.0.1", port)) != 0


def test_the_nodes_of_a_job_enter_each_other_by_the_job_s_own_key(entered: Entered) -> None:
    entered.cluster("peers")
    cluster = {"id": f"{entered.workspace}/clusters/peers"}
    line = "echo $AZ_BATCHAI_NODE_NAME $AZ_BATCHAI_JOB_NAME"
    command = f"for node in $(echo $AZ_BATCHAI_NODE_LIST | tr ';' ' ') 10.0.0.5; do ssh $node '{line}'; done"
    copy = "echo sent > file && scp -q file 10.0.0.5:. && ssh 10.0.0.5 cat file"
    path = entered.job("peers", f"{command}; {copy}", cluster=cluster)
    until(lambda: entered.state(path) in ("succeeded", "failed"), 60)
    names = [login["nodeId"] for login in entered.logins("peers")]
    said = [f"{name} peers" for name in (*names, names[1])]
    assert entered.output(path).splitlines() == [*said, "sent"], entered.output(path, "stderr.txt")
    assert entered.state(path) == "succeeded" and entered.output(path, "stderr.txt") == ""


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI")
def test_a_script_s_own_mpirun_starts_ranks_on_the_nodes_by_ssh(entered: Entered) -> None:
    entered.cluster("mpi")
    cluster = {"id": f"{entered.workspace}/clusters/mpi"}
    root = "--allow-run-as-root" if os.geteuid() == 0 else ""
    rank = 'echo "$OMPI_COMM_WORLD_RANK $AZ_BATCHAI_NODE_NAME $OMPI_MCA_coll"'
    path = entered.job("mpi", f"mpirun {root} --host 10.0.0.4,10.0.0.5 -np 2 sh -c '{rank}'", cluster=cluster)
    until(lambda: entered.state(path) in ("succeeded", "failed"), 60)
    names = [login["nodeId"] for login in entered.logins("mpi")]
    said = sorted(entered.output(path).splitlines())
    assert said == [f"{number} {name} ^han" for number, name in enumerate(names)], entered.output(path, "stderr.txt")


def test_the_key_of_a_job_opens_its_own_nodes_while_it_runs(entered: Entered, job: str) -> None:
    keys = list((entered.running.root / "tasks").glob("*/*/ssh/id_ed25519"))
    mine = [key for key in keys if f"Port {entered.port()}\n" in (key.parent / "config").read_text()]
    assert mine and all(key.stat().st_mode & 0o077 == 0 for key in mine)
    opened = [entered.run("@NODE", "echo in", key=str(key)).returncode for key in mine]
    assert opened.count(0) == 1
    other = [key for key in keys if key not in mine]
    assert other and all(entered.run("@NODE", "echo in", key=str(key)).returncode == 255 for key in other)
