"""The scenarios of azure-cli's tests for Batch AI, through azure-cli 2.0.60; checks are expressions over answers.

Source of the commands and of what is expected: test_batchai_scenario.py of Azure/azure-cli, 2018.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jmespath
from attrs import define, field

from tests.upstream.batchai.site import Site, until

COMMAND = "echo hi | tee $AZ_BATCHAI_OUTPUT_OUTPUT/result.txt"
_ACCOUNT = "<AZURE_BATCHAI_STORAGE_ACCOUNT>"


@define
class Scenario:
    """One scenario as it runs: its group, account and folder, and what became of its commands and checks.

    Attributes:
        failures: the checks that failed, each with the reason.
        count: how many checks there were.
        commands: how many commands ran, and how many of them failed.
    """

    site: Site
    az: Path
    home: Path
    group: str
    account: str
    key: str
    failures: list[str] = field(factory=list)
    count: int = 0
    commands: list[int] = field(factory=lambda: [0, 0])

    def run(self, *words: str, raw: bool = False) -> Any:
        """Runs a command of az and returns its answer; None when it failed."""
        self.commands[0] += 1
        done = subprocess.run(
            [str(self.az), *words], cwd=self.home, env=self._environment(), text=True, capture_output=True, timeout=240
        )
        if done.returncode:
            self.commands[1] += 1
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            self.failures.append(f"`az {' '.join(words)}` ended with {done.returncode}: {''.join(last)[:200]}")
            return None
        if raw:
            return done.stdout
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def check(self, answer: Any, *expected: tuple[str, Any]) -> None:
        """Checks what expressions over an answer give; ``...`` stands for anything but null."""
        for expression, wanted in expected:
            self.count += 1
            found = None if answer is None else jmespath.search(expression, answer)
            if not (found is not None if wanted is ... else found == wanted):
                self.failures.append(f"{expression} is {found!r}, not {wanted!r}")
            elif answer is None:
                self.failures.append(f"{expression}: there is no answer")

    def says(self, text: str | None, part: str) -> None:
        """Checks that a text has a part."""
        self.count += 1
        if part not in (text or ""):
            self.failures.append(f"{part!r} is not in {text!r}"[:300])

    def write(self, name: str, properties: dict[str, Any]) -> str:
        """Writes a configuration file and returns its name."""
        (self.home / name).write_text(json.dumps({"properties": properties}))
        return name

    def nodes(self, cluster: str, count: int) -> None:
        """Waits until a cluster has some nodes; the scenarios slept for ten minutes and more."""
        path = f"/resourceGroups/{self.group}/providers/Microsoft.BatchAI/workspaces/workspace/clusters/{cluster}"

        def steady() -> bool:
            properties = self.site.ask("GET", path)["properties"]
            counts = properties["nodeStateCounts"]
            return bool(properties["currentNodeCount"] == count and counts["preparingNodeCount"] == 0)

        if self.commands[1] == 0:
            until(steady, 90)

    def _environment(self) -> dict[str, str]:
        own = {"AZURE_STORAGE_ACCOUNT": self.account, "AZURE_STORAGE_KEY": self.key}
        return environment(self.site, self.az, self.home) | own | {f"AZURE_BATCHAI_{k[6:]}": v for k, v in own.items()}


def environment(site: Site, az: Path, home: Path) -> dict[str, str]:
    """Returns the environment of az: nothing of the caller's, and the service's proxy as the only way out."""
    proxy = (site.root / "proxy").read_text().strip()
    return {
        "PATH": f"{az.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "AZURE_CONFIG_DIR": str(home / "azure"),
        "AZURE_CORE_COLLECT_TELEMETRY": "no",
        "PYTHONWARNINGS": "ignore",
        "LC_ALL": "C.UTF-8",
        **dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), proxy),
        "REQUESTS_CA_BUNDLE": str(site.root / "ca.pem"),
    }


# -- the configuration files -------------------------------------------------------------------------------------------


def _share(path: str) -> dict[str, Any]:
    return {"azureFileUrl": f"https://{_ACCOUNT}.file.core.windows.net/share", "relativeMountPath": path}


def _cluster(scale: dict[str, Any], volumes: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"vmSize": "STANDARD_D1", "scaleSettings": scale}
    if volumes is not None:
        found["userAccountSettings"] = {"adminUserName": "DemoUser", "adminUserPassword": "DemoPassword"}
        found["nodeSetup"] = {"mountVolumes": volumes}
    return found


def _job(root: str, output: str | None = None, **more: Any) -> dict[str, Any]:
    outputs = [{"id": "OUTPUT", "pathPrefix": output or root}]
    own = {"customToolkitSettings": {"commandLine": COMMAND}, "stdOutErrPathPrefix": root, "outputDirectories": outputs}
    return {"nodeCount": 1, **own, **more}


ONE = {"manual": {"targetNodeCount": 1}}
ON_CLUSTER, ON_JOB = "$AZ_BATCHAI_MOUNT_ROOT/azfiles", "$AZ_BATCHAI_JOB_MOUNT_ROOT"
IN = ("-w", "workspace")
LOGS = (
    *((f"[].name | contains(@, '{name}')", True) for name in ("execution.log", "stderr.txt", "stdout.txt")),
    ("[?name == 'stdout.txt'].contentLength", [3]),
    ("[0].downloadUrl", ...),
    ("[1].downloadUrl", ...),
)
DONE = (("executionState", "succeeded"), ("executionInfo.exitCode", 0), ("executionInfo.errors", None))


def _mounted(a: Scenario, blobs: bool = False) -> tuple[tuple[str, Any], ...]:
    """Returns the checks of what a cluster mounts, by the share's path: that of the files of these scenarios or afs."""
    at = "nodeSetup.mountVolumes.azureFileShares[0]"
    share = [(f"{at}.accountName", a.account), (f"{at}.azureFileUrl", _url(a))]
    key = (f"{at}.credentialsInfo.accountKey", None)
    user = [("userAccountSettings.adminUserName", "DemoUser"), ("userAccountSettings.adminUserPassword", None)]
    if not blobs:
        return (*share, key, *user)
    blob = "nodeSetup.mountVolumes.azureBlobFileSystems[0]"
    container = [(f"{blob}.accountName", a.account), (f"{blob}.containerName", "container")]
    container += [(f"{blob}.relativeMountPath", "bfs")]
    path = (f"{at}.relativeMountPath", "afs")
    return (*share, path, key, *container, (f"{blob}.credentialsInfo.accountKey", None), *user)


def _url(a: Scenario, share: str = "share") -> str:
    return f"https://{a.account}.file.core.windows.net/{share}"


def _workspace(a: Scenario, *, checked: bool = True) -> None:
    made = a.run("batchai", "workspace", "create", "-g", a.group, "-n", "workspace")
    if checked:
        a.check(made, ("name", "workspace"))


def _experiment(a: Scenario) -> Any:
    return a.run("batchai", "experiment", "create", "-g", a.group, *IN, "-n", "experiment")


def _submit(a: Scenario, name: str, file: str, *more: str) -> Any:
    where = ("-c", "cluster", "-g", a.group, *IN, "-e", "experiment", "-n", name)
    return a.run("batchai", "job", "create", *where, "-f", file, *more)


def _of_job(a: Scenario, verb: str, name: str, *more: str) -> Any:
    return a.run("batchai", "job", verb, "-g", a.group, *IN, "-e", "experiment", "-n", name, *more)


def _files(a: Scenario, job: str, directory: str) -> Any:
    return a.run("batchai", "job", "file", "list", "-g", a.group, *IN, "-e", "experiment", "-j", job, "-d", directory)


# -- the scenarios -----------------------------------------------------------------------------------------------------


def manual_scale(a: Scenario) -> None:
    a.run("storage", "share", "create", "-n", "share")
    _workspace(a)
    a.check(a.run("batchai", "workspace", "list", "-g", a.group), ("length(@)", 1))
    file = a.write("cluster.json", _cluster(ONE, {"azureFileShares": [_share("azfiles")]}))
    made = a.run("batchai", "cluster", "create", "-g", a.group, *IN, "-n", "cluster", "-f", file)
    own = [("name", "cluster"), ("allocationState", "resizing"), ("vmSize", "STANDARD_D1")]
    a.check(made, *own, ("scaleSettings.manual.targetNodeCount", 1), *_mounted(a))
    a.check(_experiment(a), ("name", "experiment"))
    a.check(a.run("batchai", "experiment", "list", "-g", a.group, *IN), ("length(@)", 1))
    job, toolkit = a.write("job.json", _job(ON_CLUSTER)), ("customToolkitSettings.commandLine", COMMAND)
    a.check(_submit(a, "job", job), ("name", "job"), toolkit, ("executionState", "queued"))
    _of_job(a, "wait", "job")
    a.check(_of_job(a, "show", "job"), ("name", "job"), toolkit, *DONE)
    a.check(_files(a, "job", "stdouterr"), *LOGS)
    result = [("[].name | sort(@)", ["result.txt"]), ("[0].contentLength", 3), ("[0].downloadUrl", ...)]
    a.check(_files(a, "job", "OUTPUT"), *result)
    a.run("batchai", "cluster", "resize", "-g", a.group, *IN, "-n", "cluster", "-t", "0")
    a.nodes("cluster", 0)
    shown = a.run("batchai", "cluster", "show", "-g", a.group, *IN, "-n", "cluster")
    a.check(shown, ("name", "cluster"), ("currentNodeCount", 0), ("scaleSettings.manual.targetNodeCount", 0))
    a.run("batchai", "cluster", "resize", "-g", a.group, *IN, "-n", "cluster", "-t", "1")
    _submit(a, "job2", job)
    _of_job(a, "wait", "job2")
    a.check(_of_job(a, "show", "job2"), ("name", "job2"), *DONE)
    a.run("batchai", "cluster", "delete", "-g", a.group, *IN, "-n", "cluster", "-y")
    a.check(a.run("batchai", "cluster", "list", "-g", a.group, *IN), ("length(@)", 0))
    for name in ("job", "job2"):
        _of_job(a, "delete", name, "-y")
    a.check(a.run("batchai", "job", "list", "-g", a.group, *IN, "-e", "experiment"), ("length(@)", 0))


def auto_scale(a: Scenario) -> None:
    a.run("storage", "share", "create", "-n", "share")
    _workspace(a)
    scale = {"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1}}
    file = a.write("cluster.json", _cluster(scale, {"azureFileShares": [_share("azfiles")]}))
    made = a.run("batchai", "cluster", "create", "-g", a.group, *IN, "-n", "cluster", "-f", file)
    counts = [("scaleSettings.autoScale.minimumNodeCount", 0), ("scaleSettings.autoScale.maximumNodeCount", 1)]
    a.check(made, ("name", "cluster"), *counts, ("vmSize", "STANDARD_D1"), *_mounted(a))
    a.check(_experiment(a), ("name", "experiment"))
    job, toolkit = a.write("job.json", _job(ON_CLUSTER)), ("customToolkitSettings.commandLine", COMMAND)
    a.check(_submit(a, "job", job), ("name", "job"), toolkit, ("executionState", "queued"))
    _of_job(a, "wait", "job")
    a.check(_of_job(a, "show", "job"), ("name", "job"), toolkit, *DONE)
    a.nodes("cluster", 0)
    a.check(a.run("batchai", "cluster", "show", "-g", a.group, *IN, "-n", "cluster"), ("currentNodeCount", 0))


def _file_systems(a: Scenario, *options: str) -> None:
    a.run("storage", "share", "create", "-n", "share")
    a.run("storage", "container", "create", "-n", "container")
    _workspace(a)
    where = ("-g", a.group, *IN, "-n", "cluster", "--afs-name", "share", "--bfs-name", "container")
    made = a.run("batchai", "cluster", "create", *where, "-u", "DemoUser", "-k", "key.txt", *options)
    a.check(made, *_mounted(a, blobs=True))
    a.nodes("cluster", 1)
    shown = a.run("batchai", "cluster", "show", "-g", a.group, *IN, "-n", "cluster")
    a.check(shown, ("nodeStateCounts.idleNodeCount", 1))


def cluster_with_file_systems(a: Scenario) -> None:
    _file_systems(a, "-f", a.write("cluster.json", _cluster(ONE)))


def config_less_cluster_with_file_systems(a: Scenario) -> None:
    _file_systems(a, "-i", "UbuntuLTS", "--vm-size", "STANDARD_D1", "--min", "1", "--max", "1")


def _auto_storage(a: Scenario, *options: str) -> tuple[Any, tuple[tuple[str, Any], ...]]:
    """Creates a cluster with the account that az makes for it, and returns the answer and its checks."""
    _workspace(a, checked=False)
    where = ("-g", a.group, *IN, "-n", "cluster", "-s", "STANDARD_D1", "-t", "0", "-u", "DemoUser", "-k", "key.txt")
    made = a.run("batchai", "cluster", "create", *where, "--use-auto-storage", *options)
    share, blob = (f"nodeSetup.mountVolumes.{kind}[0]" for kind in ("azureFileShares", "azureBlobFileSystems"))
    account = jmespath.search(f"{share}.accountName", made or {}) or "an account"
    url = f"https://{account}.file.core.windows.net/batchaishare"
    expected = [
        (f"{share}.accountName", ...),
        (f"{share}.azureFileUrl", url),
        (f"{share}.relativeMountPath", "autoafs"),
    ]
    expected += [(f"{blob}.accountName", account), (f"{blob}.containerName", "batchaicontainer")]
    return made, (*expected, (f"{blob}.relativeMountPath", "autobfs"))


def cluster_with_auto_storage(a: Scenario) -> None:
    made, expected = _auto_storage(a, "-i", "UbuntuLTS")
    a.check(made, *expected)


def cluster_with_setup_command(a: Scenario) -> None:
    prefix = "$AZ_BATCHAI_MOUNT_ROOT/autoafs"
    made, expected = _auto_storage(a, "--setup-task", "echo hi", "--setup-task-output", prefix)
    at = "nodeSetup.setupTask"
    a.check(made, (f"{at}.commandLine", "echo hi"), (f"{at}.stdOutErrPathPrefix", prefix), *expected)


def job_level_mounting(a: Scenario) -> None:
    a.run("storage", "share", "create", "-n", "share")
    a.run("storage", "container", "create", "-n", "container")
    _workspace(a, checked=False)
    simple = a.write("cluster.json", _cluster(ONE))
    where = ("-g", a.group, *IN, "-n", "cluster", "-f", simple, "-u", "DemoUser", "-k", "key.txt")
    a.run("batchai", "cluster", "create", *where)
    _experiment(a)
    container = {"accountName": _ACCOUNT, "containerName": "container", "relativeMountPath": "bfs"}
    volumes = {"azureFileShares": [_share("afs")], "azureBlobFileSystems": [container]}
    of_job = _job(f"{ON_JOB}/afs", f"{ON_JOB}/bfs")
    own, bare = a.write("own.json", {**of_job, "mountVolumes": volumes}), a.write("bare.json", of_job)
    toolkit = ("customToolkitSettings.commandLine", COMMAND)
    result = [("[].name | contains(@, 'result.txt')", True), ("[0].contentLength", 3), ("[0].downloadUrl", ...)]
    _submit(a, "job", own)
    _of_job(a, "wait", "job")
    a.check(_of_job(a, "show", "job"), ("name", "job"), toolkit, DONE[0], DONE[2])
    a.check(_files(a, "job", "stdouterr"), *LOGS)
    a.check(_files(a, "job", "OUTPUT"), *result)
    _submit(a, "job2", bare, "--afs-name", "share", "--bfs-name", "container")
    _of_job(a, "wait", "job2")
    a.check(_of_job(a, "show", "job2"), ("name", "job2"), toolkit, *DONE)
    a.check(_files(a, "job2", "stdouterr"), *LOGS)
    a.check(_files(a, "job2", "OUTPUT"), *result)


def usages(a: Scenario) -> None:
    a.says(a.run("batchai", "list-usages", "-l", "eastus", raw=True), "Cluster")
    a.says(a.run("batchai", "list-usages", "-l", "eastus", "-o", "table", raw=True), "Cluster")


def node_exec(a: Scenario) -> None:
    _workspace(a, checked=False)
    where = ("-g", a.group, *IN, "-n", "cluster", "-s", "STANDARD_D1", "-t", "1", "-i", "UbuntuLTS")
    a.run("batchai", "cluster", "create", *where, "-u", "DemoUser", "--generate-ssh-keys")
    _experiment(a)
    a.nodes("cluster", 1)
    sleeps = {"customToolkitSettings": {"commandLine": "sleep 120"}, "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT"}
    _submit(a, "job", a.write("job.json", {"nodeCount": 1, **sleeps}))
    run = ("-g", a.group, *IN, "--exec", "echo hi")
    a.says(a.run("batchai", "cluster", "node", "exec", "-c", "cluster", *run, raw=True), "hi")
    a.says(a.run("batchai", "job", "node", "exec", "-j", "job", "-e", "experiment", *run, raw=True), "hi")
    _of_job(a, "terminate", "job", "-y")


SCENARIOS: tuple[Callable[[Scenario], None], ...] = (
    manual_scale,
    auto_scale,
    cluster_with_file_systems,
    config_less_cluster_with_file_systems,
    cluster_with_auto_storage,
    cluster_with_setup_command,
    job_level_mounting,
    usages,
    node_exec,
)


# -- every command -----------------------------------------------------------------------------------------------------


def every_command(a: Scenario) -> Iterator[tuple[str, bool]]:
    """Yields each of the 32 commands of ``az batchai`` and whether it ran to a good end."""
    a.run("storage", "share", "create", "-n", "share")
    key = ("-u", "DemoUser", "--generate-ssh-keys")
    mounted = ("--afs-name", "share")
    prefix = "$AZ_BATCHAI_MOUNT_ROOT/afs"
    job = a.write("job.json", _job(prefix))
    in_job = ("-e", "experiment", *IN, "-g", a.group)
    named = ("-g", a.group, *IN)
    disks = ("--disk-count", "1", "--disk-size", "1", "--storage-sku", "Standard_LRS")
    setup = ("--setup-task", "echo hi", "--setup-task-output", prefix)
    steps: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("workspace create", ("-g", a.group, "-n", "workspace")),
        ("workspace show", ("-g", a.group, "-n", "workspace")),
        ("workspace list", ("-g", a.group)),
        ("experiment create", (*named, "-n", "experiment")),
        ("experiment show", (*named, "-n", "experiment")),
        ("experiment list", named),
        ("file-server create", (*named, "-n", "server", "-s", "STANDARD_D1", *disks, *key)),
        ("file-server show", (*named, "-n", "server")),
        ("file-server list", named),
        ("cluster create", (*named, "-n", "cluster", "-s", "STANDARD_D1", "-t", "1", *key, *mounted, *setup)),
        ("cluster show", (*named, "-n", "cluster")),
        ("cluster list", named),
        ("cluster resize", (*named, "-n", "cluster", "-t", "2")),
        ("cluster auto-scale", (*named, "-n", "cluster", "--min", "1", "--max", "2")),
        ("cluster file list", (*named, "-c", "cluster")),
        ("cluster node list", (*named, "-c", "cluster")),
        ("cluster node exec", (*named, "-c", "cluster", "--exec", "true")),
        ("job create", (*in_job, "-n", "job", "-c", "cluster", "-f", job)),
        ("job wait", (*in_job, "-n", "job")),
        ("job show", (*in_job, "-n", "job")),
        ("job list", in_job),
        ("job file list", (*in_job, "-j", "job")),
        ("job file stream", (*in_job, "-j", "job", "-f", "stdout.txt")),
        ("job node list", (*in_job, "-j", "job")),
        ("job node exec", (*in_job, "-j", "job", "--exec", "true")),
        ("job terminate", (*in_job, "-n", "job", "-y")),
        ("job delete", (*in_job, "-n", "job", "-y")),
        ("cluster delete", (*named, "-n", "cluster", "-y")),
        ("file-server delete", (*named, "-n", "server", "-y")),
        ("experiment delete", (*named, "-n", "experiment", "-y")),
        ("workspace delete", ("-g", a.group, "-n", "workspace", "-y")),
        ("list-usages", ("-l", "eastus")),
    )
    for command, words in steps:
        failed = a.commands[1]
        a.run("batchai", *command.split(), *words, raw=True)
        if command in ("cluster auto-scale",):
            until(lambda: bool(list((a.site.root / "shares" / a.account / "share").rglob("stdout-*"))), 30)
        yield command, a.commands[1] == failed


# -- running them ------------------------------------------------------------------------------------------------------


@contextmanager
def logged_in(site: Site, az: Path) -> Iterator[Path]:
    """Gives a folder in which az is logged in."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("login", "--service-principal", "--username", "http://batchhvd", "--password", site.token)
        tenant = ("--tenant", "00000000-0000-0000-0000-00000000000a")
        home = Path(folder)
        command, settings = [str(az), *words, *tenant], environment(site, az, home)
        done = subprocess.run(command, cwd=home, env=settings, text=True, capture_output=True, timeout=240)
        if done.returncode:
            raise SystemExit(f"az login failed: {done.stderr[-500:]}")
        yield home


def begin(site: Site, az: Path, login: Path, name: str) -> Scenario:
    """Returns a scenario in a folder and a group of its own."""
    home = Path(tempfile.mkdtemp(dir=login))
    shutil.copytree(login / "azure", home / "azure")
    (home / "key.txt").write_text("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7 demo@example\n")
    group = f"g{os.urandom(3).hex()}_{name}"
    return Scenario(site, az, home, group, *site.account(group))
