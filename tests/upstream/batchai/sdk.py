"""The bodies of azure-mgmt-batchai's tests, for 2.0.0 and for 7.0.0; prints a JSON line for each: name, why it failed.

Source of what is done and expected: azure-mgmt-batchai/tests of Azure/azure-sdk-for-python, 2018.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from azure.mgmt.batchai import models as m

from tests.upstream.batchai.site import SUBSCRIPTION, Site, fetch, until

STANDARD, OUTPUTS = "stdouterr", "OUTPUTS"
MOUNT = "$AZ_BATCHAI_MOUNT_ROOT/azfiles"
IMAGE = "ubuntu"
GONE: tuple[type[Exception], ...]


class Api:
    """One way to call both generations of the package: the second one's pollers begin with ``begin_``."""

    def __init__(self, site: Site) -> None:
        global GONE
        package: Any = import_module("azure.mgmt.batchai")
        self.new = not hasattr(package, "BatchAIManagementClient")
        self.client: Any
        if self.new:
            from azure.core.exceptions import HttpResponseError

            from tests.support.place import connect

            self.client, GONE = connect(site, polling_interval=0.5), (HttpResponseError,)
        else:
            from msrest.authentication import BasicTokenAuthentication

            token = BasicTokenAuthentication({"access_token": site.token})
            self.client = package.BatchAIManagementClient(token, SUBSCRIPTION, site.url)
            GONE = (import_module("msrestazure.azure_exceptions").CloudError,)

    def run(self, group: str, verb: str, *names: Any, **more: Any) -> Any:
        """Starts an operation that takes time, and waits for its result."""
        found = getattr(self.client, group)
        return getattr(found, f"begin_{verb}" if self.new else verb)(*names, **more).result()

    def workspace(self, group: str, name: str = "workspace") -> Any:
        where = m.WorkspaceCreateParameters(location="northeurope") if self.new else "northeurope"
        return self.run("workspaces", "create", group, name, where)

    def scale(self, group: str, cluster: str, **settings: Any) -> None:
        scale = m.ScaleSettings(**settings)
        more = (
            {"parameters": m.ClusterUpdateParameters(scale_settings=scale)} if self.new else {"scale_settings": scale}
        )
        self.client.clusters.update(group, "workspace", cluster, **more)


class Body:
    """What the bodies have in common: a group, an account with a share, the waits and the looks."""

    def __init__(self, site: Site, api: Api, name: str) -> None:
        self.site, self.api, self.client = site, api, api.client
        self.group = f"g{os.urandom(3).hex()}_{name}"
        self.account, self.key = site.account(self.group)

    def cluster(self, name: str = "cluster", nodes: int = 1, wait: bool = True, **setup: Any) -> Any:
        servers = setup.pop("servers", None)
        if not (self.site.root / "shares" / self.account / "share").exists():
            self.site.share(self.account, self.key, "share")
        self.api.workspace(self.group)
        credentials = m.AzureStorageCredentialsInfo(account_key=self.key)
        url = f"https://{self.account}.file.core.windows.net/share"
        share = m.AzureFileShareReference(
            azure_file_url=url, relative_mount_path="azfiles", account_name=self.account, credentials=credentials
        )
        volumes = m.MountVolumes(azure_file_shares=[share], file_servers=servers)
        parameters = m.ClusterCreateParameters(
            vm_size="STANDARD_D1",
            scale_settings=m.ScaleSettings(manual=m.ManualScaleSettings(target_node_count=nodes)),
            node_setup=m.NodeSetup(mount_volumes=volumes, **setup),
            user_account_settings=m.UserAccountSettings(admin_user_name="demoUser", admin_user_password="Dem0Pa$$w0rd"),
            vm_priority="lowpriority",
        )
        found = self.api.run("clusters", "create", self.group, "workspace", name, parameters=parameters)
        if wait:
            self.nodes(name, nodes)
        return found

    def nodes(self, cluster: str, count: int) -> None:
        def steady() -> bool:
            found = self.client.clusters.get(self.group, "workspace", cluster)
            return bool(found.node_state_counts.idle_node_count == count and found.allocation_state != "resizing")

        assert until(steady, 120), f"{cluster} has no {count} idle nodes"
        logins = list(self.client.clusters.list_remote_login_information(self.group, "workspace", cluster))
        assert len(logins) == count
        for node in logins:
            assert re.search(r"\d+(?:\.\d+){3}", node.ip_address) and node.node_id and node.port > 0

    def job(self, cluster: Any, name: str, nodes: int, command: str, prepare: str = "", image: str = "") -> Any:
        self.api.run("experiments", "create", self.group, "workspace", "experiment")
        container = m.ContainerSettings(image_source_registry=m.ImageSourceRegistry(image=image)) if image else None
        parameters = m.JobCreateParameters(
            cluster=m.ResourceId(id=cluster.id),
            node_count=nodes,
            std_out_err_path_prefix=MOUNT,
            output_directories=[m.OutputDirectory(id=OUTPUTS, path_prefix=f"{MOUNT}/", path_suffix="files")],
            input_directories=[m.InputDirectory(id="INPUT", path=f"{MOUNT}/input")],
            container_settings=container,
            job_preparation=m.JobPreparation(command_line=prepare) if prepare else None,
            custom_toolkit_settings=m.CustomToolkitSettings(command_line=command),
        )
        return self.create(name, parameters)

    def create(self, name: str, parameters: Any, workspace: str = "workspace", experiment: str = "experiment") -> Any:
        return self.api.run("jobs", "create", self.group, workspace, experiment, name, parameters=parameters)

    def get(self, name: str) -> Any:
        return self.client.jobs.get(self.group, "workspace", "experiment", name)

    def ends(self, name: str, state: str) -> Any:
        until(lambda: self.get(name).execution_state in ("succeeded", "failed"))
        found = self.get(name)
        assert found.execution_state == state, f"{name} is {found.execution_state}: {found.execution_info}"
        return found

    def deletes(self, name: str) -> None:
        self.api.run("jobs", "delete", self.group, "workspace", "experiment", name)
        absent(lambda: self.get(name))

    def terminates(self, name: str) -> None:
        self.api.run("jobs", "terminate", self.group, "workspace", "experiment", name)

    def files(self, name: str, id: str, expected: dict[str, Any], directory: str = ".") -> None:
        options = m.JobsListOutputFilesOptions(outputdirectoryid=id, directory=directory)
        found, logs = {}, 0
        for file in self.client.jobs.list_output_files(self.group, "workspace", "experiment", name, options):
            if id == STANDARD and file.name.startswith("execution") and file.name.endswith(".log"):
                logs += 1
            else:
                found[file.name] = fetch(file.download_url) if file.file_type == "file" else None
        assert sorted(found) == sorted(expected), f"{id} holds {sorted(found)}, not {sorted(expected)}"
        for file_name, text in expected.items():
            fits = text.search(found[file_name]) if isinstance(text, re.Pattern) else found[file_name] == text
            assert fits, f"{file_name} holds {found[file_name]!r}, not {text!r}"
        assert logs or id != STANDARD, "there is no execution log"

    def can_run(self, cluster: Any, name: str, image: str = "") -> None:
        self.job(cluster, name, 1, "echo hello | tee $AZ_BATCHAI_OUTPUT_OUTPUTS/hi.txt", image=image)
        self.ends(name, "succeeded")
        self.files(name, OUTPUTS, {"hi.txt": "hello\n"})
        self.files(name, STANDARD, {"stdout.txt": "hello\n", "stderr.txt": ""})


def absent(ask: Callable[[], Any]) -> None:
    """Asks for what must not be there."""
    try:
        ask()
    except GONE:
        return
    raise AssertionError("it is still there")


# -- jobs --------------------------------------------------------------------------------------------------------------


def job_creation_and_deletion(a: Body) -> None:
    job = a.job(a.cluster(), "job", 1, "echo hi | tee $AZ_BATCHAI_OUTPUT_OUTPUTS/hi.txt", image=IMAGE)
    a.ends("job", "succeeded")
    a.files("job", STANDARD, {"stdout.txt": "hi\n", "stderr.txt": ""})
    a.files("job", OUTPUTS, {"hi.txt": "hi\n"})
    assert a.site.file(a.account, "share", f"{job.job_output_directory_path_segment}/stdouterr/stdout.txt") == "hi\n"
    a.deletes("job")


def running_job_deletion(a: Body) -> None:
    a.job(a.cluster(), "job", 1, "sleep 600")
    assert until(lambda: a.get("job").execution_state == "running")
    a.deletes("job")


def running_job_termination(a: Body) -> None:
    a.job(a.cluster(), "longrunning", 1, "sleep 600")
    assert until(lambda: a.get("longrunning").execution_state == "running")
    a.terminates("longrunning")
    a.ends("longrunning", "failed")


def queued_job_termination(a: Body) -> None:
    a.job(a.cluster(nodes=0, wait=False), "job", 1, "true")
    a.terminates("job")
    a.ends("job", "failed")
    a.deletes("job")


def completed_job_termination(a: Body) -> None:
    a.job(a.cluster(), "job", 1, "true")
    a.ends("job", "succeeded")
    a.terminates("job")
    a.ends("job", "succeeded")
    a.deletes("job")


def failed_job_reporting(a: Body) -> None:
    a.job(a.cluster(), "job", 1, "false")
    info = a.ends("job", "failed").execution_info
    assert info.exit_code == 1 and [error.code for error in info.errors] == ["JobFailed"]
    a.deletes("job")


def _preparation(a: Body, image: str = "") -> None:
    prepare = "mkdir -p $AZ_BATCHAI_INPUT_INPUT && echo hello | tee $AZ_BATCHAI_INPUT_INPUT/hi.txt"
    a.job(a.cluster(), "job", 1, "cat $AZ_BATCHAI_INPUT_INPUT/hi.txt", prepare, image)
    a.ends("job", "succeeded")
    logs = {"stdout.txt": "hello\n", "stderr.txt": "", "stdout-job_prep.txt": "hello\n", "stderr-job_prep.txt": ""}
    a.files("job", STANDARD, logs)
    a.deletes("job")


def job_preparation_host(a: Body) -> None:
    _preparation(a)


def job_preparation_container(a: Body) -> None:
    _preparation(a, IMAGE)


def _failing_preparation(a: Body, image: str = "") -> None:
    a.job(a.cluster(), "job", 1, "true", "false", image)
    info = a.ends("job", "failed").execution_info
    assert info.exit_code == 1 and [error.code for error in info.errors] == ["JobPreparationFailed"]
    a.deletes("job")


def job_host_preparation_failure_reporting(a: Body) -> None:
    _failing_preparation(a)


def job_container_preparation_failure_reporting(a: Body) -> None:
    _failing_preparation(a, IMAGE)


def password_less_ssh(a: Body) -> None:
    cluster = a.cluster(nodes=2)
    nodes = "$(echo $AZ_BATCHAI_NODE_LIST | tr ';' ' ')"  # the addresses 10.0.0.4 and 10.0.0.5 are not to be had here
    for name, image in (("job", ""), ("contained", IMAGE)):
        a.job(cluster, name, 2, f"for node in {nodes}; do ssh $node echo done || exit 1; done", image=image)
        a.ends(name, "succeeded")
        a.files(name, STANDARD, {"stdout.txt": "done\ndone\n", "stderr.txt": re.compile("Permanently added|^$")})
        a.deletes(name)


def job_level_mounting(a: Body) -> None:
    cluster = a.cluster()
    a.site.share(a.account, a.key, "jobshare")
    a.site.container(a.account, a.key, "jobcontainer")
    a.api.run("experiments", "create", a.group, "workspace", "experiment")
    own: dict[str, Any] = {"account_name": a.account, "credentials": m.AzureStorageCredentialsInfo(account_key=a.key)}
    url = f"https://{a.account}.file.core.windows.net/jobshare"
    share = m.AzureFileShareReference(azure_file_url=url, relative_mount_path="job_afs", **own)
    container = m.AzureBlobFileSystemReference(container_name="jobcontainer", relative_mount_path="job_bfs", **own)
    kinds = {"OUTPUT1": "afs", "OUTPUT2": "bfs"}
    out = [m.OutputDirectory(id=id, path_prefix=f"$AZ_BATCHAI_JOB_MOUNT_ROOT/job_{k}") for id, k in kinds.items()]
    prepare = "; ".join(f"echo {k} > $AZ_BATCHAI_OUTPUT_{id}/prep_{k}.txt" for id, k in kinds.items())
    steps = []
    for id, k in kinds.items():
        place = f"$AZ_BATCHAI_OUTPUT_{id}"
        steps += [f"echo {k} > {place}/job_{k}.txt; mkdir {place}/{k}; echo {k} > {place}/{k}/job_{k}.txt"]
    parameters = m.JobCreateParameters(
        cluster=m.ResourceId(id=cluster.id),
        node_count=1,
        mount_volumes=m.MountVolumes(azure_file_shares=[share], azure_blob_file_systems=[container]),
        std_out_err_path_prefix=MOUNT,
        output_directories=out,
        job_preparation=m.JobPreparation(command_line=f"{prepare}; echo done"),
        custom_toolkit_settings=m.CustomToolkitSettings(command_line="; ".join([*steps, "echo done"])),
    )
    job = a.create("job", parameters)
    a.ends("job", "succeeded")
    logs = {"stdout.txt": "done\n", "stderr.txt": "", "stdout-job_prep.txt": "done\n", "stderr-job_prep.txt": ""}
    a.files("job", STANDARD, logs)
    for id, k in kinds.items():
        a.files("job", id, {f"job_{k}.txt": f"{k}\n", f"prep_{k}.txt": f"{k}\n", k: None})
        a.files("job", id, {f"job_{k}.txt": f"{k}\n"}, k)
    segment = job.job_output_directory_path_segment
    assert a.site.file(a.account, "jobshare", f"{segment}/outputs/job_afs.txt") == "afs\n"
    look = "echo job; test -e $AZ_BATCHAI_JOB_MOUNT_ROOT/job_bfs || test -e $AZ_BATCHAI_JOB_MOUNT_ROOT/job_afs"
    checker = m.JobCreateParameters(
        cluster=m.ResourceId(id=cluster.id),
        node_count=1,
        std_out_err_path_prefix=MOUNT,
        custom_toolkit_settings=m.CustomToolkitSettings(command_line=look),
    )
    a.create("checker", checker)
    a.ends("checker", "failed")
    a.files("checker", STANDARD, {"stdout.txt": "job\n", "stderr.txt": ""})


def job_environment_variables_and_secrets(a: Body) -> None:
    cluster = a.cluster()
    a.api.run("experiments", "create", a.group, "workspace", "experiment")
    command = "echo $VARIABLE $SECRET_VARIABLE"
    parameters = m.JobCreateParameters(
        cluster=m.ResourceId(id=cluster.id),
        node_count=1,
        std_out_err_path_prefix=MOUNT,
        environment_variables=[m.EnvironmentVariable(name="VARIABLE", value="VALUE")],
        secrets=[m.EnvironmentVariableWithSecretValue(name="SECRET_VARIABLE", value="SECRET")],
        job_preparation=m.JobPreparation(command_line=command),
        custom_toolkit_settings=m.CustomToolkitSettings(command_line=command),
    )
    job = a.create("job", parameters)
    a.ends("job", "succeeded")
    assert [(entry.name, entry.value) for entry in job.environment_variables] == [("VARIABLE", "VALUE")]
    assert [(entry.name, entry.value) for entry in job.secrets] == [("SECRET_VARIABLE", None)]
    text = "VALUE SECRET\n"
    logs = {"stdout.txt": text, "stderr.txt": "", "stdout-job_prep.txt": text, "stderr-job_prep.txt": ""}
    a.files("job", STANDARD, logs)


# -- clusters and file servers -----------------------------------------------------------------------------------------


def _clusters_are(a: Body, names: list[str]) -> None:
    found = sorted(cluster.name for cluster in a.client.clusters.list_by_workspace(a.group, "workspace"))
    assert found == names


def cluster_creation_and_deletion(a: Body) -> None:
    cluster = a.cluster()
    assert (cluster.name, cluster.errors, cluster.vm_size) == ("cluster", None, "STANDARD_D1")
    _clusters_are(a, ["cluster"])
    a.can_run(cluster, "host_job")
    a.can_run(cluster, "container_job", IMAGE)
    a.api.run("clusters", "delete", a.group, "workspace", "cluster")
    _clusters_are(a, [])


def setup_task_execution(a: Body) -> None:
    task = m.SetupTask(
        command_line="echo $GREETING $SECRET_GREETING",
        environment_variables=[m.EnvironmentVariable(name="GREETING", value="setup task")],
        secrets=[m.EnvironmentVariableWithSecretValue(name="SECRET_GREETING", value="has a secret")],
        std_out_err_path_prefix=MOUNT,
    )
    setup = a.cluster(setup_task=task).node_setup.setup_task
    _clusters_are(a, ["cluster"])
    assert [(entry.name, entry.value) for entry in setup.secrets] == [("SECRET_GREETING", None)]
    (node,) = a.client.clusters.list_remote_login_information(a.group, "workspace", "cluster")
    place = setup.std_out_err_path_suffix
    assert a.site.file(a.account, "share", f"{place}/stdout-{node.node_id}.txt") == "setup task has a secret\n"
    assert a.site.file(a.account, "share", f"{place}/stderr-{node.node_id}.txt") == ""
    a.api.run("clusters", "delete", a.group, "workspace", "cluster")


def cluster_resizing(a: Body) -> None:
    cluster = a.cluster()
    for nodes in (0, 1):
        a.api.scale(a.group, "cluster", manual=m.ManualScaleSettings(target_node_count=nodes))
        a.nodes("cluster", nodes)
    a.can_run(cluster, "host_job")
    a.api.run("clusters", "delete", a.group, "workspace", "cluster")


def auto_scaling(a: Body) -> None:
    cluster = a.cluster(nodes=0, wait=False)
    a.api.scale(a.group, "cluster", auto_scale=m.AutoScaleSettings(minimum_node_count=0, maximum_node_count=1))
    a.can_run(cluster, "host_job")
    a.nodes("cluster", 0)
    a.api.run("clusters", "delete", a.group, "workspace", "cluster")


def file_server(a: Body) -> None:
    a.api.workspace(a.group)
    user = m.UserAccountSettings(admin_user_name="demoUser", admin_user_password="Dem0Pa$$w0rd")
    parameters = m.FileServerCreateParameters(
        vm_size="STANDARD_D1",
        ssh_configuration=m.SshConfiguration(user_account_settings=user),
        data_disks=m.DataDisks(disk_size_in_gb=10, disk_count=2, storage_account_type="Standard_LRS"),
    )
    server = a.api.run("file_servers", "create", a.group, "workspace", "server", parameters)
    reference = m.FileServerReference(
        file_server=m.ResourceId(id=server.id), relative_mount_path="nfs", mount_options="rw"
    )
    first, second = (a.cluster(name, servers=[reference]) for name in ("cluster1", "cluster2"))
    assert [found.name for found in a.client.file_servers.list_by_workspace(a.group, "workspace")] == ["server"]
    shown = a.client.file_servers.get(a.group, "workspace", "server")
    assert shown.provisioning_state == "succeeded"
    for address in (shown.mount_settings.file_server_public_ip, shown.mount_settings.file_server_internal_ip):
        assert re.search(r"\d+(?:\.\d+){3}", address)
    place = "$AZ_BATCHAI_MOUNT_ROOT/nfs"
    for name, image in (("host", ""), ("container", IMAGE)):
        a.job(first, f"{name}_publisher", 1, f"echo hi from {name} > {place}/{name}.txt", image=image)
        a.ends(f"{name}_publisher", "succeeded")
    a.job(second, "consumer", 1, f"cat {place}/host.txt; cat {place}/container.txt")
    a.ends("consumer", "succeeded")
    a.files("consumer", STANDARD, {"stdout.txt": "hi from host\nhi from container\n", "stderr.txt": ""})
    for cluster in ("cluster1", "cluster2"):
        a.api.run("clusters", "delete", a.group, "workspace", cluster)
    a.api.run("file_servers", "delete", a.group, "workspace", "server")
    assert list(a.client.file_servers.list_by_workspace(a.group, "workspace")) == []


# -- workspaces, experiments, usage ------------------------------------------------------------------------------------


def _waiting(a: Body, workspace: str, experiments: tuple[str, ...]) -> None:
    """Makes a cluster without nodes, and in each experiment a job that waits for it."""
    parameters = m.ClusterCreateParameters(
        vm_size="STANDARD_D1",
        scale_settings=m.ScaleSettings(manual=m.ManualScaleSettings(target_node_count=0)),
        user_account_settings=m.UserAccountSettings(admin_user_name="demoUser", admin_user_password="Dem0Pa$$w0rd"),
        vm_priority="lowpriority",
    )
    cluster = a.api.run("clusters", "create", a.group, workspace, "cluster", parameters=parameters)
    for experiment in experiments:
        a.api.run("experiments", "create", a.group, workspace, experiment)
        job = m.JobCreateParameters(
            cluster=m.ResourceId(id=cluster.id),
            node_count=1,
            std_out_err_path_prefix="$AZ_BATCHAI_MOUNT_ROOT",
            custom_toolkit_settings=m.CustomToolkitSettings(command_line="true"),
        )
        a.create("job", job, workspace, experiment)


def workspace_creation_and_deletion(a: Body) -> None:
    made = a.api.workspace(a.group, "testee")
    assert made.name == "testee" and a.client.workspaces.get(a.group, "testee").id == made.id
    assert made.id in [found.id for found in a.client.workspaces.list()]
    assert made.id in [found.id for found in a.client.workspaces.list_by_resource_group(a.group)]
    a.api.run("workspaces", "delete", a.group, "testee")
    assert list(a.client.workspaces.list_by_resource_group(a.group)) == []


def workspace_update(a: Body) -> None:
    a.api.workspace(a.group)
    tags = {"tags": {"values": "atag"}}
    more = {"parameters": m.WorkspaceUpdateParameters(**tags)} if a.api.new else tags
    a.client.workspaces.update(a.group, "workspace", **more)
    assert a.client.workspaces.get(a.group, "workspace").tags["values"] == "atag"


def workspaces_isolation(a: Body) -> None:
    for name in ("first", "second"):
        a.api.workspace(a.group, name)
        _waiting(a, name, ("experiment",))
    a.api.run("workspaces", "delete", a.group, "first")
    absent(lambda: a.client.workspaces.get(a.group, "first"))
    a.client.workspaces.get(a.group, "second")
    a.client.clusters.get(a.group, "second", "cluster")
    a.client.experiments.get(a.group, "second", "experiment")
    assert a.client.jobs.get(a.group, "second", "experiment", "job").execution_state == "queued"


def experiment_creation_and_deletion(a: Body) -> None:
    a.api.workspace(a.group)
    made = a.api.run("experiments", "create", a.group, "workspace", "testee")
    assert made.name == "testee" and a.client.experiments.get(a.group, "workspace", "testee").id == made.id
    assert made.id in [found.id for found in a.client.experiments.list_by_workspace(a.group, "workspace")]
    a.api.run("experiments", "delete", a.group, "workspace", "testee")
    absent(lambda: a.client.experiments.get(a.group, "workspace", "testee"))


def experiments_isolation(a: Body) -> None:
    for name in ("first", "second"):
        a.api.workspace(a.group, name)
        _waiting(a, name, ("exp1", "exp2"))
    a.api.run("experiments", "delete", a.group, "first", "exp1")
    absent(lambda: a.client.experiments.get(a.group, "first", "exp1"))
    for workspace, experiment in (("first", "exp2"), ("second", "exp1"), ("second", "exp2")):
        a.client.clusters.get(a.group, workspace, "cluster")
        a.client.experiments.get(a.group, workspace, experiment)
        assert a.client.jobs.get(a.group, workspace, experiment, "job").execution_state == "queued"


def quota_and_usage(a: Body) -> None:
    usages = list(a.client.usages.list("northeurope"))
    assert usages and all(usage.name is not None and usage.unit is not None for usage in usages)


BODIES: tuple[Callable[[Body], None], ...] = (
    job_creation_and_deletion,
    running_job_deletion,
    running_job_termination,
    queued_job_termination,
    completed_job_termination,
    failed_job_reporting,
    job_preparation_host,
    job_preparation_container,
    job_host_preparation_failure_reporting,
    job_container_preparation_failure_reporting,
    password_less_ssh,
    job_level_mounting,
    job_environment_variables_and_secrets,
    cluster_creation_and_deletion,
    setup_task_execution,
    cluster_resizing,
    auto_scaling,
    file_server,
    workspace_creation_and_deletion,
    workspace_update,
    workspaces_isolation,
    experiment_creation_and_deletion,
    experiments_isolation,
    quota_and_usage,
)


def main(root: str, chosen: list[str]) -> None:
    site = Site(Path(root))
    api = Api(site)
    for body in BODIES:
        if chosen and body.__name__ not in chosen:
            continue
        if body is file_server and not hasattr(api.client.file_servers, "get"):
            continue  # 7.0.0 cannot read a file server
        why = ""
        try:
            body(Body(site, api, body.__name__))
        except Exception as error:
            where = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
            why = f"line {where[-1]}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        print(json.dumps({"name": body.__name__, "why": why}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
