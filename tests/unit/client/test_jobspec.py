"""Job files: read, written, and equal to what is written in Python."""

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from batchhvd.errors import SpecError
from batchhvd.spec.job import (
    Cntk,
    CustomMpi,
    CustomToolkit,
    Horovod,
    InputDirectory,
    JobSpec,
    Mount,
    OutputDirectory,
    Volume,
)

JOBS = Path(__file__).parents[2] / "data" / "jobs"
NAMES = sorted(path.name for path in JOBS.glob("*.json"))
WITH_ACCOUNT = [name for name in NAMES if "STORAGE_ACCOUNT" in (JOBS / name).read_text()]

pytestmark = pytest.mark.filterwarnings("ignore:.*older API version")


@frozen
class Share:
    """A share as ``FileShare`` looks to this module."""

    account: str
    name: str

    def mount(self, path: str) -> Mount:
        return Mount(self.account, self.name, path)


def tutorial() -> JobSpec:
    mount = Share("mystorageaccount", "myshare").mount("myshare")
    return JobSpec(
        nodes=4,
        task=Horovod(script=mount / "cifar/cifar_cnn_distributed.py", args=f"--dir={mount / 'cifar'}"),
        mounts=[mount],
        logs=mount / "cifar",
        preparation="apt update; apt install mpi-default-dev mpi-default-bin -y; pip install keras horovod",
        image="tensorflow/tensorflow:1.8.0-gpu",
    )


def wrong(tmp_path: Path, text: str, **given: Any) -> SpecError:
    path = tmp_path / "mein jöb.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        JobSpec.read(path, **given)
    assert caught.value.file == str(path)
    return caught.value


def job(**properties: object) -> str:
    """A valid job with some properties changed; None takes one away."""
    base = {"nodeCount": 1, "stdOutErrPathPrefix": "/logs", "customToolkitSettings": {"commandLine": "true"}}
    return json.dumps({"properties": {k: v for k, v in {**base, **properties}.items() if v is not None}}, indent=1)


def test_the_tutorials_file_and_the_python_block_are_one_value() -> None:
    assert JobSpec.read(JOBS / "tutorial-4-nodes.json", account="mystorageaccount") == tutorial()


def test_shares_may_be_given_instead_of_an_account() -> None:
    share = Share("mystorageaccount", "myshare")
    assert JobSpec.read(JOBS / "tutorial-4-nodes.json", mounts={"myshare": share}) == tutorial()


def test_a_share_of_another_name_can_be_mounted_where_the_file_says() -> None:
    spec = JobSpec.read(JOBS / "share-name-differs-from-mount-path.json", mounts={"external": Share("a1", "other")})
    assert spec.mounts == (Mount("a1", "other", "external"),)
    assert isinstance(spec.task, Horovod) and spec.task.script == spec.mounts[0] / "hello.py"


def test_a_share_for_a_path_that_is_not_mounted_is_refused() -> None:
    with pytest.raises(SpecError, match='no share is mounted at "mysahre"; did you mean "myshare"'):
        JobSpec.read(JOBS / "tutorial-4-nodes.json", account="a", mounts={"mysahre": Share("a", "b")})


@pytest.mark.parametrize("name", NAMES)
def test_published_files_come_back_as_they_were(name: str) -> None:
    spec = JobSpec.read(JOBS / name, account="examplestore")
    text = (JOBS / name).read_text().replace("<AZURE_BATCHAI_STORAGE_ACCOUNT>", "examplestore")
    expected = json.loads(text)
    expected.pop("$schema", None)
    for share in expected["properties"].get("mountVolumes", {}).get("azureFileShares", ()):
        share["accountName"] = "examplestore"  # filled in
    assert spec.to_document() == expected
    assert JobSpec.from_document(spec.to_document()) == spec


@pytest.mark.parametrize("name", NAMES)
def test_a_written_file_reads_back_equal(name: str, tmp_path: Path) -> None:
    spec = JobSpec.read(JOBS / name, account="examplestore")
    spec.write(tmp_path / "jöb.json")
    assert JobSpec.read(tmp_path / "jöb.json") == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize("name", WITH_ACCOUNT)
def test_without_an_account_the_setting_is_named(name: str) -> None:
    with pytest.raises(SpecError, match="AZURE_BATCHAI_STORAGE_ACCOUNT") as caught:
        JobSpec.read(JOBS / name)
    assert caught.value.pointer.endswith("/azureFileUrl")
    assert "account=" in caught.value.remedy
    line = (JOBS / name).read_text().splitlines()[caught.value.line - 1]
    assert line[caught.value.column - 1 :].startswith('"https://<AZURE')


def test_ranks_default_to_nodes() -> None:
    assert JobSpec.read(JOBS / "horovod-minimal-two-shares.json", account="a").ranks == 2
    assert evolve(tutorial(), task=Horovod("x.py", processes=8)).ranks == 8
    assert JobSpec.read(JOBS / "nop-no-mounts.json").ranks == 1


def test_another_toolkit_has_its_own_class() -> None:
    spec = JobSpec.read(JOBS / "cntk-brainscript-2017.json")
    assert isinstance(spec.task, Cntk)
    assert spec.task.wire == "cntkSettings" and spec.ranks == 2
    assert spec.inputs[0] == InputDirectory("DATASET", "$AZ_BATCHAI_MOUNT_ROOT/external/mnist_database")


def test_blob_containers_and_outputs_are_read() -> None:
    spec = JobSpec.read(JOBS / "custom-mpi-scoring.json", account="a")
    assert spec.volumes[0].kind == "azureBlobFileSystems"
    assert spec.volumes[0] / "unlabeled_images" == spec.inputs[1].path
    assert spec.outputs == (OutputDirectory("LABEL", "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs"),)
    assert isinstance(spec.task, CustomMpi)
    assert spec._accounts() == ("a",)


def test_older_fields_are_accepted_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="older API version") as seen:
        spec = JobSpec.read(JOBS / "custom-toolkit-extra-fields.json", account="a")
    assert len(seen) == 2
    assert any(':26: "toolType"' in warning for warning in spec.warnings)
    assert spec.outputs[0].extra == {"type": "custom"}


def test_unknown_fields_are_kept_and_said() -> None:
    document = json.loads(job(zzzOwnField={"deep": [1]}))
    with pytest.warns(UserWarning, match='"zzzOwnField" is not a field of the published schema'):
        spec = JobSpec.from_document(document)
    assert spec.to_document() == document


# --- what is wrong is said with its place ---


def test_a_misspelt_field_gets_the_nearest_name(tmp_path: Path) -> None:
    error = wrong(tmp_path, '{\n "properties": {\n  "nodeCuont": 4\n }\n}')
    assert (error.line, error.column, error.pointer) == (3, 3, "/properties/nodeCuont")
    assert error.remedy == 'did you mean "nodeCount"?'
    assert str(error).startswith(f"{error.file}:3:3: /properties/nodeCuont: ")


@pytest.mark.parametrize(
    ("properties", "pointer", "problem", "remedy"),
    [
        ({"nodeCount": None}, "/properties", '"nodeCount" is missing', "number of compute nodes"),
        ({"nodeCount": "4"}, "/properties/nodeCount", "is not a whole number", "write 4 without quotes"),
        ({"nodeCount": 2.5}, "/properties/nodeCount", "is not a whole number", ""),
        ({"nodeCount": True}, "/properties/nodeCount", "is not a whole number", ""),
        ({"nodeCount": 0}, "/properties/nodeCount", "whole number of at least 1, not 0", "such as 4"),
        ({"stdOutErrPathPrefix": " "}, "/properties/stdOutErrPathPrefix", "directory for the logs is missing", "mount"),
        ({"customToolkitSettings": None}, "/properties", "nothing says what to run", "horovodSettings"),
        ({"cntkSettings": {}}, "/properties", "cntkSettings and customToolkitSettings are given together", "one of"),
        ({"schedulingPriorty": "low"}, "/properties/schedulingPriorty", "no field", "schedulingPriority"),
        ({"schedulingPriority": "now"}, "/properties/schedulingPriority", "not allowed", "low, normal, high"),
        (
            {"constraints": {"maxWallClockTime": "3h"}},
            "/properties/constraints/maxWallClockTime",
            "not a duration",
            "PT",
        ),
        ({"inputDirectories": {"id": "A"}}, "/properties/inputDirectories", "is not a list", "in a list"),
        (
            {"inputDirectories": [{"id": "A B", "path": "/"}]},
            "/properties/inputDirectories/0/id",
            "not the id of a directory",
            "letters",
        ),
        ({"inputDirectories": [{"id": "A"}]}, "/properties/inputDirectories/0", '"path" is missing', "path"),
        ({"inputDirectories": [{"id": "A", "path": "/"}] * 2}, "/properties/inputDirectories", "twice", "keep one"),
        ({"environmentVariables": [{"name": "A=", "value": ""}]}, "/properties/environmentVariables/0", "name", "="),
        (
            {"mountVolumes": {"azureFileShares": [{"azureFileUrl": "x", "relativeMountPath": "m"}]}},
            "/properties/mountVolumes/azureFileShares/0/azureFileUrl",
            "not the address of a file share",
            "https://ACCOUNT",
        ),
        (
            {
                "mountVolumes": {
                    "azureFileShares": [{"azureFileUrl": "https://a.file.x/s", "relativeMountPath": "../m"}]
                }
            },
            "/properties/mountVolumes/azureFileShares/0/relativeMountPath",
            "is not a path below the mount root",
            "relative",
        ),
        (
            {"horovodSettings": {"pythonScriptFilePath": "x", "processCount": 0}, "customToolkitSettings": None},
            "/properties/horovodSettings/processCount",
            "processes must be a whole number of at least 1, not 0",
            "such as 4",
        ),
    ],
)
def test_a_wrong_value_is_named_with_pointer_and_remedy(
    tmp_path: Path, properties: dict[str, Any], pointer: str, problem: str, remedy: str
) -> None:
    error = wrong(tmp_path, job(**properties))
    assert error.pointer == pointer
    assert problem in error.problem
    assert remedy in error.remedy
    assert error.line > 1


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("", (1, 1), "empty"),
        ('{"a": 1,}', (1, 8), "comma stands before the closing }"),
        ('{"a": [1 2]}', (1, 10), "a comma or ] is missing"),
        ("{\n  // hello\n}", (2, 3), "JSON has none"),
        ("{'a': 1}", (1, 2), "double quotes"),
        ('{"a": True}', (1, 7), "Python, not JSON"),
        ('{"a": NaN}', (1, 7), "NaN is not a number"),
        ('{"a": 1', (1, 8), "ends in the middle"),
        ('{"ä": "x\ny"}', (1, 9), "invalid control character"),
        ('{"a": 1,\n "a": 2}', (2, 2), '"a" is given twice, first on line 1'),
        ('{"a" 1}', (1, 6), 'a colon is missing after "a"'),
        ("{} {}", (1, 4), "more follows"),
        ("[" * 100, (1, 62), "levels deep"),
    ],
)
def test_broken_json_is_said_in_words_with_its_place(
    tmp_path: Path, text: str, place: tuple[int, int], problem: str
) -> None:
    error = wrong(tmp_path, text)
    assert (error.line, error.column) == place
    assert problem in str(error)


def test_a_file_that_is_not_utf8_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "latin.json"
    path.write_bytes(b'{\n "a": "\xe4"}')
    with pytest.raises(SpecError, match=r"latin.json:2:8: is not UTF-8"):
        JobSpec.read(path)
    with pytest.raises(SpecError, match="cannot read .*No such file"):
        JobSpec.read(tmp_path / "nicht da.json")


def test_a_byte_order_mark_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "bom.json"
    path.write_bytes(b"\xef\xbb\xbf" + job().encode())
    assert JobSpec.read(path).nodes == 1


# --- placeholders: one is filled, the others refused, the node's own left alone ---


def test_another_placeholder_is_refused(tmp_path: Path) -> None:
    error = wrong(tmp_path, job(stdOutErrPathPrefix="$AZ_BATCHAI_JOB_MOUNT_ROOT/<YOUR_SHARE>"), account="a")
    assert error.pointer == "/properties/stdOutErrPathPrefix"
    assert "<YOUR_SHARE> is still to be filled in" in error.problem


def test_the_shells_angles_in_a_command_are_left_alone() -> None:
    command = "sort <(ls $HOME) >out; cat <in>out; diff <a >b"
    spec = JobSpec.from_document(json.loads(job(customToolkitSettings={"commandLine": command})))
    assert spec.task == CustomToolkit(command)


def test_nothing_of_the_nodes_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZ_BATCHAI_JOB_MOUNT_ROOT", "/wrong")
    assert JobSpec.read(JOBS / "nop-no-mounts.json").logs == "$AZ_BATCHAI_JOB_MOUNT_ROOT"


def test_a_key_placeholder_means_that_the_client_looks_it_up() -> None:
    share = {
        "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/s",
        "relativeMountPath": "s",
        "credentials": {"accountKey": "<AZURE_BATCHAI_STORAGE_KEY>"},
    }
    spec = JobSpec.from_document(json.loads(job(mountVolumes={"azureFileShares": [share]})), account="acc")
    assert spec._accounts() == ("acc",)


# --- keys and secrets ---


def secretive() -> JobSpec:
    share = {
        "azureFileUrl": "https://acc.file.core.windows.net/s",
        "relativeMountPath": "s",
        "credentials": {"accountKey": "S3CRET1"},
    }
    image = {"imageSourceRegistry": {"image": "i", "credentials": {"username": "u", "password": "S3CRET2"}}}
    container = {"accountName": "b", "containerName": "c", "relativeMountPath": "c"}
    volumes = {"azureFileShares": [share], "azureBlobFileSystems": [container]}
    secrets = [{"name": "TOKEN", "value": "S3CRET3"}]
    return JobSpec.from_document(json.loads(job(mountVolumes=volumes, containerSettings=image, secrets=secrets)))


def test_no_secret_is_in_a_document_or_a_repr() -> None:
    spec = secretive()
    assert "S3CRET" not in repr(spec) + repr(spec.mounts) + json.dumps(spec.to_document())
    assert spec.to_document()["properties"]["secrets"] == [{"name": "TOKEN"}]


def test_a_request_has_them_and_the_keys_that_were_looked_up() -> None:
    spec = secretive()
    assert spec._accounts() == ("b",)
    properties = spec._request("/the/cluster", {"b": "S3CRET4"})["properties"]
    assert properties["cluster"] == {"id": "/the/cluster"}
    assert properties["mountVolumes"]["azureFileShares"][0]["credentials"] == {"accountKey": "S3CRET1"}
    assert properties["mountVolumes"]["azureBlobFileSystems"][0]["credentials"] == {"accountKey": "S3CRET4"}
    assert properties["containerSettings"]["imageSourceRegistry"]["credentials"]["password"] == "S3CRET2"
    assert properties["secrets"] == [{"name": "TOKEN", "value": "S3CRET3"}]


def test_a_job_as_the_service_shows_it_equals_its_spec() -> None:
    spec = evolve(tutorial(), environment={"A": "1"})
    shown = spec._request("/c", {"mystorageaccount": "k"})
    share = shown["properties"]["mountVolumes"]["azureFileShares"][0]
    share.update(credentials={}, fileMode="0777", directoryMode="0777")
    shown["properties"]["horovodSettings"]["processCount"] = 4
    added = {
        "provisioningState": "succeeded",
        "executionState": "queued",
        "toolType": "horovod",
        "schedulingPriority": "normal",
        "constraints": {"maxWallClockTime": "7.00:00:00"},
        "inputDirectories": None,
    }
    shown["properties"].update(added)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = JobSpec._from_job({"name": "j", **shown})
    assert found == spec
    assert found.cluster == "/c"


# --- paths on a mount ---


def test_paths_below_a_mount() -> None:
    mount = Mount("acc", "share", "my share")
    assert f"{mount / 'x'}" == "$AZ_BATCHAI_JOB_MOUNT_ROOT/my share/x"
    assert mount / "a" / "b" == mount / "a/b/" == "$AZ_BATCHAI_JOB_MOUNT_ROOT/my share/a/b"
    assert str(mount) == "$AZ_BATCHAI_JOB_MOUNT_ROOT/my share"
    assert str(Volume("fileServers", "nfs") / "x") == "$AZ_BATCHAI_JOB_MOUNT_ROOT/nfs/x"


@pytest.mark.parametrize("below", ["../x", "/etc", "", "a/../../b"])
def test_a_path_that_leads_out_is_refused(below: str) -> None:
    with pytest.raises(SpecError, match="relative path"):
        Mount("acc", "share", "m") / below


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080/acc/my%20share", "https://acc.file.core.windows.net/my%20share/"]
)
def test_host_style_and_path_style_addresses(url: str) -> None:
    mount = Mount.from_document({"azureFileUrl": url, "relativeMountPath": "m"})
    assert (mount.account, mount.share) == ("acc", "my share")
    assert mount.to_document()["azureFileUrl"] == url


def test_two_accounts_for_one_share_are_refused() -> None:
    with pytest.raises(SpecError, match='"other" is not the account of'):
        Mount.from_document({"azureFileUrl": "https://acc.file.x/s", "accountName": "other", "relativeMountPath": "m"})


def test_what_python_gives_is_checked_too() -> None:
    with pytest.raises(SpecError, match="script must be a text that is not empty, not ' '"):
        Horovod(" ")
    with pytest.raises(SpecError, match="is not a task"):
        JobSpec(nodes=1, task="python x.py", logs="/l")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match='"m" is mounted twice'):
        JobSpec(nodes=1, task=CustomToolkit("x"), logs="/l", mounts=[Mount("a", "b", "m"), Mount("a", "c", "m")])
    with pytest.raises(SpecError, match="max_seconds must be more than 0"):
        JobSpec(nodes=1, task=CustomToolkit("x"), logs="/l", max_seconds=0)


def test_an_output_may_be_a_name() -> None:
    mount = Mount("account", "share", "files")
    spec = JobSpec(nodes=1, task=Horovod("train.py"), logs=mount / "logs", mounts=[mount], outputs=["model"])
    assert spec.outputs == (OutputDirectory("model", f"{mount}/logs", "model"),)
    assert evolve(spec, nodes=2).outputs == spec.outputs
    assert JobSpec.from_document(spec.to_document()) == spec
    with pytest.raises(SpecError, match='"my model" is not the id of a directory'):
        evolve(spec, outputs=["my model"])
