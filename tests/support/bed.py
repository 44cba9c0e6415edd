"""A real Slurm of several nodes on one machine, for tests and for trying things out. Needs root and Debian's packages.

    bed.py install                        fetches the packages that are missing (apt)
    bed.py up DIR [--nodes 4] [--cpus 2] [--gpus 2] [--share PATH]... [--accounting]
    bed.py hold DIR [as up]               keeps it up until standard input ends, whatever ends the caller
    bed.py down DIR                       ends it, also one that came up by half
    bed.py node-kill DIR node3            the node loses its power
    bed.py node-start DIR node3           ... and gets it back
    bed.py controller-stop DIR            the controller is away, jobs go on
    bed.py controller-start DIR
    bed.py on-head DIR COMMAND...         runs a command as on the login node
    bed.py on-node DIR node2 COMMAND...   runs a command on a node, beside Slurm

Each node is a set of namespaces: its own network address, host name, processes, shared memory and ``/tmp``. What it has
in common with the others is the file system, as on a cluster with a shared one; of ``/tmp`` it sees DIR and the folders
given with ``--share``. The login node ("head") holds the controller and the wires between the nodes. No wire leads out
of it, and nothing but the folder DIR exists outside of the namespaces.

``DIR/bin`` has Slurm's commands (sbatch, squeue, ...) as seen from the login node: put it first in PATH, or hand it to
the engine: ``Slurm(bin="DIR/bin")``.

With ``--accounting``, slurmdbd and MariaDB run too: ``sacct``, and limits and preemption by the QOS that ``sacctmgr``
makes. The account ``main`` and this user are there. It needs the packages slurmdbd and mariadb-server
(``bed.py install --accounting``).

Every process is known by its pid and the moment it started; only those are ended.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

# A program that the bed needs, and its package.
PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge", "ip": "iproute2"}
MPI_PACKAGES = ("openmpi-bin", "libpmix-dev")
ACCOUNTING_PACKAGES = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server"}
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun", "sstat", "sacct", "sacctmgr")
NETWORK = "172.30.97"
SBIN = "/usr/sbin:/sbin"
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18


class BedError(Exception):
    """The bed could not be made or used; the message says why and where to look."""


# --- processes: known by pid and start time ---------------------------------------------------------------------------


def started(pid: int) -> str:
    """Returns when a process started (in the kernel's ticks since boot), or "" when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def record(folder: Path, name: str, pid: int) -> None:
    """Notes a process so that ``down`` finds it again, and nobody else."""
    scratch = folder / "run" / f".{name}"
    scratch.write_text(f"{pid} {started(pid)}\n")
    scratch.replace(folder / "run" / name)


def alive(folder: Path, name: str) -> int:
    """Returns the pid of a recorded process, or 0 when it is gone."""
    try:
        pid, start = (folder / "run" / name).read_text().split()
    except (OSError, ValueError):
        return 0
    return int(pid) if started(int(pid)) == start else 0


def end(folder: Path, name: str) -> None:
    """Ends the first process of a set of namespaces, and with it everything in them."""
    pid = alive(folder, name)
    if pid:
        os.kill(pid, signal.SIGKILL)
        poll(lambda: not started(pid), f"{name} (pid {pid}) did not end")
    (folder / "run" / name).unlink(missing_ok=True)


def poll(done: Callable[[], object], problem: str, seconds: float = 20.0) -> None:
    """Waits until something is true.

    Raises:
        BedError: it is not after the given time.
    """
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise BedError(f"{problem} within {seconds:.0f} s")
        time.sleep(0.02)


# --- configuration ----------------------------------------------------------------------------------------------------


def node_names(count: int) -> list[str]:
    return [f"node{i}" for i in range(1, count + 1)]


def address(name: str) -> str:
    return f"{NETWORK}.1" if name == "head" else f"{NETWORK}.{10 + int(name.removeprefix('node'))}"


def configuration(folder: Path, nodes: int, cpus: int, memory: int, gpus: int, *, accounting: bool = False) -> str:
    """Returns slurm.conf: no cgroups, no delays, two partitions of which ``urgent`` takes nodes away."""
    log, run, state = folder / "log", folder / "run", folder / "state"
    settings = {
        "ClusterName": "bed",
        "SlurmctldHost": f"head({address('head')})",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={run}/munge.socket",
        "StateSaveLocation": state / "controller",
        "SlurmdSpoolDir": f"{state}/%n",
        "TmpFS": "/tmp",
        "SlurmctldPidFile": run / "slurmctld.pid",
        "SlurmdPidFile": f"{run}/slurmd-%n.pid",
        "SlurmctldLogFile": log / "slurmctld.log",
        "SlurmdLogFile": f"{log}/slurmd-%n.log",
        # No systemd and no cgroups are needed; processes are followed by their parents.
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SwitchType": "switch/none",
        "MpiDefault": "none",
        "AccountingStorageType": "accounting_storage/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "JobCompType": "jobcomp/none",
        # Slurm's own pauses between two looks at the queue would be most of a test's time.
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=10000,sched_interval=1,bf_interval=1",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "DefMemPerCPU": "100",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "JobRequeue": "1",
        "ReturnToService": "2",
        "SlurmdTimeout": "10",
        "InactiveLimit": "0",
        "KillWait": "4",
        "MessageTimeout": "4",
        "MinJobAge": "3600",
        "MaxJobCount": "20000",
        "SlurmdParameters": "config_overrides",
    }
    if accounting:
        settings |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "head",
            "AccountingStoragePass": run / "munge.socket",
            "AccountingStorageEnforce": "associations,limits,qos",
            "JobAcctGatherType": "jobacct_gather/linux",
            "PreemptType": "preempt/qos",
        }
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines += ["GresTypes=gpu"] if gpus else []
    gres = f" Gres=gpu:{gpus}" if gpus else ""
    for name in node_names(nodes):
        where = f"NodeName={name} NodeHostname={name} NodeAddr={address(name)}"
        lines.append(f"{where} CPUs={cpus} RealMemory={memory}{gres} State=UNKNOWN")
    members = f"Nodes=node[1-{nodes}] MaxTime=INFINITE State=UP"
    lines.append(f"PartitionName=main {members} Default=YES PriorityTier=1")
    lines.append(f"PartitionName=urgent {members} PriorityTier=9 PreemptMode=OFF")
    return "\n".join(lines) + "\n"


def accounting_configuration(folder: Path) -> str:
    """Returns slurmdbd.conf."""
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/run/munge.socket",
        "DbdHost": "head",
        "SlurmUser": "root",
        "LogFile": folder / "log/slurmdbd.log",
        "PidFile": folder / "run/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "StorageLoc": "slurm",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def write_gpus(folder: Path, gpus: int) -> None:
    """Makes devices that Slurm takes for GPUs: it wants character devices, so these are as ``/dev/null``."""
    (folder / "dev").mkdir()
    for i in range(gpus):
        os.mknod(folder / "dev" / f"gpu{i}", 0o666 | 0o020000, os.makedev(1, 3))
    if gpus:
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/dev/gpu[0-{gpus - 1}]\n")


def write_wrapper(folder: Path, name: str, command: str) -> None:
    """Writes ``DIR/bin/NAME``: the command on the login node, or simply here when it is called from inside the bed."""
    path = folder / "bin" / name
    path.write_text(
        f"""#!/bin/sh
export SLURM_CONF='{folder}/slurm.conf'
[ "$(readlink /proc/self/ns/net)" = '{os.readlink("/proc/self/ns/net")}' ] || exec {command} "$@"
read -r pid start < '{folder}/run/head' || {{ echo "{name}: no bed is up in {folder}" >&2; exit 1; }}
read -r stat < "/proc/$pid/stat" && set -- "${{stat##*) }}" "$@" || exit 1
[ "$(echo "$1" | cut -d' ' -f20)" = "$start" ] || {{ echo "{name}: no bed is up in {folder}" >&2; exit 1; }}
shift
exec nsenter --target "$pid" --net --uts --mount --wdns="$PWD" -- {command} "$@"
"""
    )
    path.chmod(0o755)


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Makes the folder with everything that the bed's processes read."""
    for name in ("bin", "log", "run", "state", "etc", "state/controller"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    names = node_names(options.nodes)
    hosts = [f"{address(name)} {name}" for name in ("head", *names)]
    (folder / "etc/hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts]) + "\n")
    shares = [str(Path(path).resolve()) for path in options.share]
    (folder / "bed.json").write_text(json.dumps({"nodes": names, "shares": shares}))
    sizes = (options.nodes, options.cpus, options.memory, options.gpus)
    (folder / "slurm.conf").write_text(configuration(folder, *sizes, accounting=options.accounting))
    if options.accounting:
        (folder / "slurmdbd.conf").write_text(accounting_configuration(folder))
        (folder / "slurmdbd.conf").chmod(0o600)
    write_gpus(folder, options.gpus)
    key = folder / "state/munge.key"
    key.touch(mode=0o400)
    key.write_bytes(os.urandom(128))
    for name in COMMANDS:
        write_wrapper(folder, name, shutil.which(name, path=os.environ["PATH"] + ":" + SBIN) or name)
    write_wrapper(folder, "on-head", "")


# --- namespaces -------------------------------------------------------------------------------------------------------


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mounts by the system call itself, which unlike mount(8) also takes ``/proc/self/fd/N`` as it is."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (text.encode() or None for text in (source, target, kind))
    if libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def own_tmp(shared: Iterable[str]) -> None:
    """Covers /tmp by an empty one in which only the shared folders are found again."""
    kept = {path: os.open(path, os.O_PATH) for path in shared if path.startswith("/tmp/")}
    mount("tmp", "/tmp", "tmpfs", data="mode=1777")
    for path, descriptor in kept.items():
        os.makedirs(path, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", path, flags=MS_BIND | MS_REC)
        os.close(descriptor)


def enter(folder: Path, name: str) -> None:
    """Becomes the first process of a machine of the bed: reports itself, takes its name, waits for its network."""
    record(folder, name, int(os.readlink("/proc/self")))
    mount("", "/", flags=MS_REC | MS_PRIVATE)
    socket.sethostname(name)
    mount(f"{folder}/etc/hosts", "/etc/hosts", flags=MS_BIND)
    print("ready", flush=True)
    sys.stdin.readline()


def head(folder: Path) -> None:
    """Runs munge's and Slurm's daemons of the login node until it is ended."""
    enter(folder, "head")
    ip("link set lo up", "link add wires type bridge", f"addr add {address('head')}/24 dev wires", "link set wires up")
    run, state = folder / "run", folder / "state"
    munge = f"--key-file={state}/munge.key --socket={run}/munge.socket --pid-file={run}/munged.pid"
    files = f"--log-file={folder}/log/munged.log --seed-file={state}/munged.seed"
    subprocess.Popen(["munged", "--foreground", "--force", *munge.split(), *files.split()])
    poll((run / "munge.socket").exists, "munged did not start")
    if (folder / "slurmdbd.conf").exists():
        keep_accounts(folder)
    subprocess.Popen(["slurmctld", "-D", "-f", str(folder / "slurm.conf")])
    print("up", flush=True)
    reap()


def keep_accounts(folder: Path) -> None:
    """Runs MariaDB and slurmdbd on the login node, and makes an account for this user."""
    data, socket_path = folder / "state/database", folder / "run/database.socket"
    # The database library looks for localhost at a path that is built in; the head has a /run of its own.
    mount("run", "/run", "tmpfs", data="mode=755")
    os.makedirs("/run/mysqld")
    install = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db"]
    subprocess.run([*install, "--auth-root-authentication-method=normal"], check=True, stdout=subprocess.DEVNULL)
    settings = [f"--datadir={data}", f"--socket={socket_path}", f"--log-error={folder}/log/mariadb.log", "--user=root"]
    small = ["--skip-networking", "--innodb-buffer-pool-size=32M", "--innodb-lock-wait-timeout=900"]
    subprocess.Popen(["mariadbd", "--no-defaults", *settings, *small])
    poll(socket_path.exists, "MariaDB did not start", 60)
    os.symlink(socket_path, "/run/mysqld/mysqld.sock")
    subprocess.Popen(["slurmdbd", "-D"], env={**os.environ, "SLURM_CONF": str(folder / "slurm.conf")})
    poll(lambda: not _accounts("show", "cluster").returncode, "slurmdbd did not start", 60)
    for words in ("cluster bed", "account main", "user root account=main"):
        _accounts("add", *words.split())


def _accounts(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["sacctmgr", "--immediate", *words], stdout=subprocess.DEVNULL)


def node(folder: Path, name: str, shares: list[str]) -> None:
    """Runs a node's daemon until the node is ended."""
    enter(folder, name)
    mount("proc", "/proc", "proc")
    mount("shm", "/dev/shm", "tmpfs", data="size=50%,mode=1777")
    own_tmp([str(folder), *shares])
    ip("link set lo up", f"addr add {address(name)}/24 dev eth0", "link set eth0 up")
    os.chdir("/")
    subprocess.Popen(["slurmd", "-D", "-f", str(folder / "slurm.conf"), "-N", name])
    print("up", flush=True)
    reap()


def reap() -> None:
    """Waits for children, whoever left them behind, as the first process of a machine has to."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.pause()


def ip(*commands: str, target: int = 0) -> None:
    """Runs commands of ip(8), here or in the network of another process."""
    inside = ["nsenter", "--target", str(target), "--net"] if target else []
    subprocess.run([*inside, "ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)


def boot(folder: Path, name: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts a machine and waits until it has namespaces of its own; its network comes next."""
    if alive(folder, name):
        raise BedError(f"{name} is up already")
    kinds = ["--net", "--uts", "--mount", "--pid", "--ipc"]
    command = ["unshare", *kinds, "--fork", "--kill-child", sys.executable, __file__]
    with open(folder / "log" / f"{name}.log", "a") as log:
        process = subprocess.Popen(
            [*command, "_boot", str(folder), name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env={**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": os.environ["PATH"] + ":" + SBIN},
        )
    expect(process, "ready", folder, name)
    return process


def go(process: subprocess.Popen[str]) -> None:
    """Tells a machine that its network is there."""
    if process.stdin:
        process.stdin.write("go\n")
        process.stdin.flush()


def expect(process: subprocess.Popen[str], line: str, folder: Path, name: str) -> None:
    """Waits for a machine's report of how far it is."""
    if not process.stdout or process.stdout.readline().strip() != line:
        raise BedError(f"{name} did not come up; see {folder}/log/{name}.log")


def switch_on(folder: Path, names: Iterable[str]) -> None:
    """Starts nodes side by side and lays a wire from each to the head."""
    bed = json.loads((folder / "bed.json").read_text())
    centre = alive(folder, "head")
    processes = {name: boot(folder, name, *bed["shares"]) for name in names}
    for name, process in processes.items():
        far = f"type veth peer name eth0 netns {alive(folder, name)}"
        ip(f"link add {name} {far}", f"link set {name} master wires up", target=centre)
        go(process)
    for name, process in processes.items():
        expect(process, "up", folder, name)


# --- commands ---------------------------------------------------------------------------------------------------------


def missing() -> list[str]:
    """Returns the Debian packages that are missing on this machine."""
    path = os.environ.get("PATH", "") + ":" + SBIN
    return sorted({package for program, package in PACKAGES.items() if not shutil.which(program, path=path)})


def obstacle() -> str:
    """Returns why no bed can be made here, or ""."""
    if os.geteuid():
        return "needs root, to make network namespaces"
    packages = missing()
    return f"needs the packages {' '.join(packages)} (as root: python3 {__file__} install)" if packages else ""


def install(*, accounting: bool = False) -> None:
    """Installs what is missing and what MPI jobs need, without starting the packages' own services."""
    packages = [*missing(), *MPI_PACKAGES, *(ACCOUNTING_PACKAGES.values() if accounting else ())]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in [["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]]:
        subprocess.run(["apt-get", *command], env=environment, check=True, stdout=subprocess.DEVNULL)


def up(folder: Path, options: argparse.Namespace) -> None:
    """Brings the bed up and waits until all nodes are idle; after a failure nothing is left running.

    Raises:
        BedError: packages or rights are missing, a bed is up there already, or a part did not start.
    """
    problem = obstacle()
    if problem:
        raise BedError(problem)
    if (folder / "bed.json").exists():
        raise BedError(f"{folder} holds a bed already; take it down first: {__file__} down {folder}")
    if set(str(folder)) & set(" \t'\"#%[],"):
        raise BedError(f"Slurm cannot have such a folder in its configuration: {folder}")
    begun = time.monotonic()
    prepare(folder, options)
    try:
        start(folder, node_names(options.nodes))
    except BaseException:
        stop(folder)
        raise
    print(f"{options.nodes} nodes idle after {time.monotonic() - begun:.1f} s; commands in {folder}/bin", flush=True)


def hold(folder: Path, options: argparse.Namespace) -> None:
    """Brings the bed up and takes it down when standard input ends, as it does when the caller is killed."""
    up(folder, options)
    try:
        sys.stdin.read()
    finally:
        stop(folder)


def start(folder: Path, names: list[str]) -> None:
    process = boot(folder, "head")
    go(process)
    expect(process, "up", folder, "head")
    switch_on(folder, names)
    wait_idle(folder, names)


def states(folder: Path) -> dict[str, str]:
    """Returns each node's state in Slurm's words; empty while the controller does not answer."""
    command = [str(folder / "bin/sinfo"), "--noheader", "--Node", "--partition=main", "--format=%N %T"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return dict(line.split() for line in answer.stdout.splitlines())


def wait_idle(folder: Path, names: Iterable[str]) -> None:
    """Waits until Slurm would give each of these nodes to a job."""
    poll(
        lambda: all(states(folder).get(name) == "idle" for name in names),
        f"not all of {', '.join(names)} came up; see {folder}/log",
        30,
    )


def recorded(folder: Path) -> Iterator[str]:
    """Yields the machines of a bed that were ever started, the head last."""
    names = sorted(path.name for path in (folder / "run").glob("*") if path.name.startswith(("node", "head")))
    yield from sorted(names, key=lambda name: name == "head")


def stop(folder: Path) -> None:
    """Ends all machines; the folder keeps its logs and can be used again."""
    for name in list(recorded(folder)):
        end(folder, name)
    for name in ("bed.json", "slurmdbd.conf", "run", "state", "dev", "bin"):
        path = folder / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def inside(folder: Path, name: str, command: list[str], *, processes: bool) -> list[str]:
    """Returns the command line that runs something on a machine of the bed, seeing its processes or all."""
    pid = alive(folder, name)
    if not pid:
        raise BedError(f"{name} is not up in {folder}")
    kinds = ["--net", "--uts", "--mount", *(["--pid", "--ipc"] if processes else [])]
    return ["nsenter", "--target", str(pid), *kinds, f"--wdns={os.getcwd()}", "--", *command]


def controller_start(folder: Path) -> None:
    """Starts the controller again, among the head's processes."""
    command = ["slurmctld", "-f", str(folder / "slurm.conf")]
    subprocess.run(inside(folder, "head", command, processes=True), check=True)
    answer = f"the controller does not know its nodes; see {folder}/log/slurmctld.log"
    poll(lambda: known(states(folder)), answer, 40)


def known(found: dict[str, str]) -> bool:
    return bool(found) and "unknown" not in found.values()


def controller_stop(folder: Path) -> None:
    """Stops the controller as its administrator would."""
    subprocess.run([folder / "bin/scontrol", "shutdown", "slurmctld"], check=True)
    poll(lambda: "slurmctld" not in children(alive(folder, "head")), "the controller did not end")


def children(pid: int) -> set[str]:
    """Returns the names of the processes right below one."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {Path(f"/proc/{child}/comm").read_text().strip() for child in found if started(int(child))}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bed.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("verb")
    parser.add_argument("folder", nargs="?", type=Path, default=Path())
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--memory", type=int, default=4000)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--share", action="append", default=[])
    parser.add_argument("--accounting", action="store_true")
    return parser.parse_args(arguments)


def perform(verb: str, folder: Path, rest: list[str]) -> int:
    """Does what a verb other than ``up`` asks; returns the exit code."""
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    os.environ["PATH"] += ":" + SBIN
    if verb in ("on-head", "on-node"):
        name, command = ("head", rest) if verb == "on-head" else (rest[0], rest[1:])
        return subprocess.run(inside(folder, name, command, processes=name != "head")).returncode
    actions: dict[str, Callable[[], None]] = {
        "install": lambda: install(accounting="--accounting" in (str(folder), *rest)),
        "down": lambda: stop(folder),
        "node-kill": lambda: end(folder, rest[0]),
        "node-start": lambda: switch_on(folder, rest),
        "controller-stop": lambda: controller_stop(folder),
        "controller-start": lambda: controller_start(folder),
    }
    if verb not in actions:
        raise BedError(f"no verb {verb!r}; there are: up, hold, on-head, on-node, {', '.join(actions)}")
    actions[verb]()
    return 0


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    verb, *rest = arguments or [""]
    folder = Path(rest[0]) if rest else Path()
    folder = folder if verb == "install" else folder.resolve()
    if verb == "_boot":
        head(folder) if rest[1] == "head" else node(folder, rest[1], rest[2:])
    try:
        if verb in ("up", "hold"):
            (up if verb == "up" else hold)(folder, parse(arguments))
            return 0
        return perform(verb, folder, rest[1:])
    except (BedError, subprocess.CalledProcessError) as error:
        print(f"bed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
