"""Where paths lie, and that none leads out."""

from __future__ import annotations

import pytest

from batchhvd.service.batchai import redact
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts.model import MountPoint
from batchhvd.wire.facts.mount_roots import CLUSTER_ROOT, JOB_ROOT

MOUNTS = [
    MountPoint(JOB_ROOT, "data/set", "acc", "share"),
    MountPoint(CLUSTER_ROOT, "nfs", "", "/file/server", "sub/dir"),
]


@pytest.mark.parametrize(
    ("path", "mount", "place"),
    [
        ("$AZ_BATCHAI_JOB_MOUNT_ROOT/data/set", 0, ""),
        ("${AZ_BATCHAI_JOB_MOUNT_ROOT}/data/set/a b/ü", 0, "a b/ü"),
        ("$AZ_BATCHAI_JOB_MOUNT_ROOT//data/./set/x/", 0, "x"),
        ("$AZ_BATCHAI_MOUNT_ROOT/nfs/x", 1, "sub/dir/x"),
        ("$AZ_BATCHAI_MOUNT_ROOT/nfs", 1, "sub/dir"),
    ],
)
def test_a_path_lies_on_its_mount(path: str, mount: int, place: str) -> None:
    assert mounts.locate(path, MOUNTS) == (MOUNTS[mount], place)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/data/set",
        "data/set",
        "$AZ_BATCHAI_JOB_MOUNT_ROOT",
        "$AZ_BATCHAI_JOB_MOUNT_ROOT/data",
        "$AZ_BATCHAI_JOB_MOUNT_ROOT/data/settle",
        "$AZ_BATCHAI_JOB_MOUNT_ROOT/data/set/../../../etc",
        "$AZ_BATCHAI_MOUNT_ROOT/data/set",
        "$AZ_BATCHAI_JOB_MOUNT_ROOTS/data/set",
        "$HOME/data/set",
    ],
)
def test_other_paths_lie_on_none(path: str) -> None:
    assert mounts.locate(path, MOUNTS) is None


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://acc.file.core.windows.net/share", ("share", "")),
        ("https://acc.file.core.windows.net/share/a%20b/c/", ("share", "a b/c")),
        ("http://127.0.0.1:8080/acc/share", ("share", "")),
        ("http://acc.file.localhost:8080/share/a", ("share", "a")),
        ("http://other.file.localhost:8080/share", None),
        ("https://other.file.core.windows.net/share", None),
        ("http://127.0.0.1:8080/other/share", None),
        ("https://acc.file.core.windows.net/", None),
        ("https://acc.file.core.windows.net/share/../x", None),
        ("https://acc.file.core.windows.net/share/%2E%2E/x", None),
        ("file:///acc/share", None),
        ("http://[bad", None),
        ("", None),
    ],
)
def test_the_share_of_a_url(url: str, found: tuple[str, str] | None) -> None:
    assert mounts.share_of(url, "acc") == found


def test_secrets_are_taken_out_of_documents() -> None:
    share = {"accountName": "acc", "credentials": {"accountKey": "KEY"}, "relativeMountPath": "m"}
    properties = {
        "mountVolumes": {"azureFileShares": [share]},
        "secrets": [{"name": "S", "value": "SECRET"}],
        "environmentVariables": [{"name": "E", "value": "shown"}],
        "containerSettings": {"imageSourceRegistry": {"credentials": {"username": "u", "password": "PASS"}}},
        "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "PASS", "adminUserSshPublicKey": "K"},
    }
    shown = redact.visible(properties)
    assert not any(word in str(shown) for word in ("KEY", "SECRET", "PASS"))
    assert shown["mountVolumes"]["azureFileShares"][0]["credentials"] == {}
    assert shown["secrets"] == [{"name": "S"}] and shown["environmentVariables"] == [{"name": "E", "value": "shown"}]
    assert redact.account_keys(properties["mountVolumes"]) == {"acc": "KEY"}  # type: ignore[arg-type]
    assert redact.secrets(properties["secrets"]) == {"S": "SECRET"}  # type: ignore[arg-type]


def test_the_segment_of_a_jobs_outputs() -> None:
    id = "/subscriptions/S/resourceGroups/g.1/providers/Microsoft.BatchAI/workspaces/W/experiments/E/jobs/J"
    assert mounts.segment(id, "U") == "S/g.1/workspaces/W/experiments/E/jobs/J/U"
