"""What an account and a share are set to: browsers' rules, access policies, quotas, deleted shares that come back."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.storage.fileshare import (
    AccessPolicy,
    CorsRule,
    Metrics,
    RetentionPolicy,
    ShareClient,
    ShareProtocolSettings,
    ShareSasPermissions,
    ShareSmbSettings,
    SmbMultichannel,
    generate_file_sas,
    generate_share_sas,
)

from batchhvd.service.files.app import Files
from batchhvd.service.storage.disk.graves import Plot
from batchhvd.service.storage.disk.sidecar import Sidecar
from batchhvd.service.storage.protocol import xml
from tests.wire.files.conftest import ACCOUNT, KEYS, OTHER, Service, code
from tests.wire.files.test_files_escape import everything
from tests.wire.files.test_files_fuzz import ask

KEY = KEYS[ACCOUNT][0]
NOW = datetime.now(timezone.utc).replace(microsecond=0)
PAGE = "http://page.example"


def refused(attempt: Callable[[], Any], status: int, expected: str) -> None:
    with pytest.raises(HttpResponseError) as caught:
        attempt()
    assert code(caught) == (status, expected)


@pytest.fixture
def rules(service: Service) -> Iterator[None]:
    service.account().set_service_properties(
        cors=[
            CorsRule(
                [PAGE], ["GET", "PUT"], max_age_in_seconds=60, allowed_headers=["x-ms-*"], exposed_headers=["etag"]
            ),
            CorsRule(["*"], ["HEAD"], allowed_headers=["*"]),
        ]
    )
    yield
    service.account().set_service_properties(cors=[])


@pytest.mark.usefixtures("rules")
def test_a_browsers_preflight_is_answered_by_the_accounts_rules(service: Service, web: httpx.Client) -> None:
    def ask_for(origin: str, method: str, headers: str = "", account: str = ACCOUNT) -> httpx.Response:
        sent = {"Origin": origin, "Access-Control-Request-Method": method}
        sent |= {"Access-Control-Request-Headers": headers} if headers else {}
        return web.options(f"{service.url}/{account}/share/f", headers=sent)

    answer = ask_for(PAGE, "PUT", "X-Ms-Version, x-ms-date")
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-methods"] == "PUT"
    assert answer.headers["access-control-max-age"] == "60"
    assert answer.headers["access-control-allow-headers"] == "x-ms-version,x-ms-date"
    assert ask_for("http://other.example", "HEAD", "anything").headers["access-control-allow-origin"] == "*"
    for wrong in (
        ask_for("http://other.example", "GET"),
        ask_for(PAGE, "DELETE"),
        ask_for(PAGE, "GET", "authorization"),
        ask_for(PAGE, "GET", account=OTHER),
        ask_for(PAGE + ".evil", "GET"),
    ):
        assert (wrong.status_code, wrong.headers["x-ms-error-code"]) == (403, "CorsPreflightFailure")
    assert web.options(f"{service.url}/{ACCOUNT}/share/f").status_code == 400


@pytest.mark.usefixtures("rules")
def test_answers_tell_a_browser_whether_a_page_may_have_them(
    service: Service, share: ShareClient, web: httpx.Client
) -> None:
    share.get_file_client("f").upload_file(b"data")
    url = f"{share.url}/f?{service.files.sas(ACCOUNT, share.share_name, 'f', 'r', 4e9)}"
    answer = web.get(url, headers={"Origin": PAGE})
    assert (answer.content, answer.headers["access-control-allow-origin"]) == (b"data", PAGE)
    assert (answer.headers["access-control-expose-headers"], answer.headers["vary"]) == ("etag", "Origin")
    assert "access-control-allow-origin" not in web.get(url, headers={"Origin": "http://other.example"}).headers
    assert "access-control-allow-origin" not in web.get(url).headers
    missing = web.get(url.replace("/f?", "/g?"), headers={"Origin": PAGE})
    assert (missing.status_code, missing.headers["access-control-allow-origin"]) == (403, PAGE)


def test_settings_are_kept_each_for_itself(service: Service) -> None:
    client = service.account(OTHER)
    assert client.get_service_properties()["protocol"].smb.multichannel.enabled is False
    metrics = Metrics(enabled=True, include_apis=True, retention_policy=RetentionPolicy(enabled=True, days=5))
    client.set_service_properties(hour_metrics=metrics)
    client.set_service_properties(
        protocol=ShareProtocolSettings(smb=ShareSmbSettings(multichannel=SmbMultichannel(enabled=True)))
    )
    told = client.get_service_properties()
    assert told["hour_metrics"].retention_policy.days == 5 and told["hour_metrics"].include_apis
    assert not told["minute_metrics"].enabled
    assert told["protocol"].smb.multichannel.enabled is True
    assert service.account().get_service_properties()["hour_metrics"].enabled is False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<a/>",
        b"<StorageServiceProperties>",
        b"<StorageServiceProperties><Nonsense/></StorageServiceProperties>",
        b"<StorageServiceProperties><Cors><CorsRule/></Cors></StorageServiceProperties>",
        b'<!DOCTYPE a [<!ENTITY b "c">]><StorageServiceProperties/>',
        b"<StorageServiceProperties><HourMetrics><Enabled>perhaps</Enabled></HourMetrics></StorageServiceProperties>",
        b"<StorageServiceProperties>" + b" " * (1 << 16) + b"</StorageServiceProperties>",
    ],
)
def test_settings_that_are_none_are_refused(tmp_path: Path, body: bytes) -> None:
    files = Files(tmp_path, KEYS.get)
    scope = {
        "type": "http", "method": "PUT", "scheme": "http", "client": ("::1", 1), "raw_path": f"/{ACCOUNT}".encode(),
        "query_string": f"restype=service&comp=properties&{everything()}".encode(), "headers": [],
    }  # fmt: skip
    assert asyncio.run(ask(files, scope, body)) == 400
    files.close()


def test_a_link_has_the_permission_of_the_policy_that_it_names(service: Service, share: ShareClient) -> None:
    share.get_file_client("f").upload_file(b"data")

    def by_policy(name: str = "readers", **more: Any) -> ShareClient:
        token = generate_share_sas(ACCOUNT, share.share_name, KEY, policy_id=name, **more)
        return service.share(share.share_name, token)

    def read(client: ShareClient) -> bytes:
        return client.get_file_client("f").download_file().readall()

    policy = AccessPolicy(
        ShareSasPermissions(read=True), expiry=NOW + timedelta(hours=1), start=NOW - timedelta(hours=1)
    )
    share.set_share_access_policy({"readers": policy, "open": AccessPolicy()})
    kept = share.get_share_access_policy()["signed_identifiers"]
    assert [(each.id, each.access_policy.permission if each.access_policy else None) for each in kept] == [
        ("readers", "r"),
        ("open", None),
    ]
    assert read(by_policy()) == b"data"
    file_link = generate_file_sas(ACCOUNT, share.share_name, ["f"], KEY, policy_id="readers")
    assert read(service.share(share.share_name, file_link)) == b"data"
    refused(lambda: by_policy().get_file_client("f").upload_file(b"x"), 403, "AuthorizationPermissionMismatch")
    whole: dict[str, Any] = {"permission": "r", "expiry": NOW + timedelta(hours=1)}
    assert read(by_policy("open", **whole)) == b"data"
    for wrong in (by_policy("unknown"), by_policy("open"), by_policy(permission="rw"), by_policy(**whole)):
        with pytest.raises(ClientAuthenticationError):
            read(wrong)
    share.set_share_access_policy({"readers": AccessPolicy(ShareSasPermissions(read=True), NOW - timedelta(hours=1))})
    with pytest.raises(ClientAuthenticationError):
        read(by_policy())
    share.set_share_access_policy({})
    with pytest.raises(ClientAuthenticationError):
        read(by_policy())


def test_a_share_grows_to_its_quota_and_no_further(service: Service) -> None:
    share = service.share("small-quota")
    share.create_share(quota=1)
    folder = service.files.directory(ACCOUNT, "small-quota")
    assert folder is not None
    with (folder / "by a job").open("wb") as job:
        os.posix_fallocate(job.fileno(), 0, (1 << 30) - (2 << 20))
    share.get_file_client("fits").upload_file(b"x" * (1 << 20))
    refused(lambda: share.get_file_client("large").create_file(2 << 20), 413, "ShareSizeLimitReached")
    sparse = share.get_file_client("fits")
    refused(lambda: sparse.resize_file(3 << 20), 413, "ShareSizeLimitReached")
    (folder / "by a job").unlink()
    time.sleep(1.1)  # how old a count may be
    share.get_file_client("large").upload_file(b"x" * (2 << 20))
    share.delete_share()


def test_an_error_of_authentication_says_its_detail(service: Service, share: ShareClient, web: httpx.Client) -> None:
    answer = web.get(f"{share.url}?restype=share")
    detail = xml.read([answer.content], "Error").findtext("AuthenticationErrorDetail") or ""
    assert "neither an Authorization header" in detail


class Keeping:
    """A file service that keeps deleted shares, without a port."""

    def __init__(self, root: Path) -> None:
        self.ahead = 0.0
        self.root = root
        self.files = Files(root, KEYS.get, now=lambda: time.time() + self.ahead, kept_days=2)

    def send(self, method: str, path: str, query: str, **headers: str) -> int:
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http", "method": method, "scheme": "http", "client": ("::1", 1), "headers": pairs,
            "raw_path": f"/{ACCOUNT}{path}".encode(), "query_string": f"{query}&{everything()}".encode(),
        }  # fmt: skip
        return asyncio.run(ask(self.files, scope, b""))

    def versions(self) -> list[str]:
        folder = self.root / ".files" / "deleted" / ACCOUNT / "myshare"
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def restore(self, version: str) -> int:
        headers = {"x_ms_deleted_share_name": "myshare", "x_ms_deleted_share_version": version}
        return self.send("PUT", "/myshare", "restype=share&comp=undelete", **headers)


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Keeping]:
    found = Keeping(tmp_path / "root")
    assert found.send("PUT", "/myshare", "restype=share", x_ms_meta_a="1", x_ms_share_quota="7") == 201
    (found.root / ACCOUNT / "myshare" / "f").write_bytes(b"data")
    assert found.send("PUT", "/myshare", "restype=share&comp=snapshot") == 201
    yield found
    found.files.close()


def test_a_deleted_share_comes_back_with_all_that_was_noted(keeping: Keeping) -> None:
    share = keeping.root / ACCOUNT / "myshare"
    assert keeping.send("DELETE", "/myshare", "restype=share", x_ms_delete_snapshots="include") == 202
    assert not share.exists()
    assert keeping.send("GET", "/myshare", "restype=share") == 404
    (version,) = keeping.versions()
    assert keeping.send("PUT", "/myshare", "restype=share") == 201
    assert keeping.restore(version) == 409
    assert keeping.send("DELETE", "/myshare", "restype=share") == 202
    assert keeping.restore(version) == 201
    assert (share / "f").read_bytes() == b"data"
    notes = Sidecar(keeping.root / ".files" / "sidecar.sqlite")
    facts = notes.get(f"{ACCOUNT}/myshare", "", share.stat().st_ino)
    notes.close()
    assert (facts["metadata"], facts["quota"]) == ({"a": "1"}, 7)
    (stamp,) = os.listdir(keeping.root / ".files" / "snapshots" / ACCOUNT / "myshare")
    assert keeping.send("GET", "/myshare/f", f"sharesnapshot={stamp}") == 200
    assert keeping.restore(version) == 404


def test_a_deleted_share_goes_when_its_days_are_over(keeping: Keeping) -> None:
    keeping.send("DELETE", "/myshare", "restype=share", x_ms_delete_snapshots="include")
    (version,) = keeping.versions()
    keeping.ahead = 2 * 86400 + 1
    assert keeping.restore(version) == 404
    assert keeping.versions() == []


@pytest.mark.parametrize("step", ["follow_down", "follow_up"])
@pytest.mark.parametrize("moved", [0, 1])
def test_a_service_killed_while_it_deleted_or_restored_ends_that_at_its_next_start(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch, step: str, moved: int
) -> None:
    """What is noted has been moved, and none or one of the two directories."""

    def killed(plot: Plot) -> None:
        if moved and step == "follow_down":
            os.rename(plot.snapshots, plot.grave / "snapshots")
        elif moved:
            os.rename(plot.grave / "share", plot.share)
        raise RuntimeError("killed")

    if step == "follow_up":
        keeping.send("DELETE", "/myshare", "restype=share", x_ms_delete_snapshots="include")
    monkeypatch.setattr(Plot, step, killed)
    if step == "follow_down":
        assert keeping.send("DELETE", "/myshare", "restype=share", x_ms_delete_snapshots="include") == 500
    else:
        assert keeping.restore(keeping.versions()[0]) == 500
    monkeypatch.undo()
    keeping.files.close()
    keeping.files = Files(keeping.root, KEYS.get, kept_days=2)
    if step == "follow_down":
        assert keeping.send("GET", "/myshare", "restype=share") == 404
        assert keeping.restore(keeping.versions()[0]) == 201
    assert keeping.versions() == []
    assert (keeping.root / ACCOUNT / "myshare" / "f").read_bytes() == b"data"
    (stamp,) = os.listdir(keeping.root / ".files" / "snapshots" / ACCOUNT / "myshare")
    assert keeping.send("GET", "/myshare/f", f"sharesnapshot={stamp}") == 200


def test_a_share_is_not_restored_under_another_name(keeping: Keeping) -> None:
    keeping.send("DELETE", "/myshare", "restype=share", x_ms_delete_snapshots="include")
    (version,) = keeping.versions()
    headers = {"x_ms_deleted_share_name": "myshare", "x_ms_deleted_share_version": version}
    assert keeping.send("PUT", "/othershare", "restype=share&comp=undelete", **headers) == 400
    assert keeping.restore("..") == 404
    with pytest.raises((ResourceNotFoundError, FileNotFoundError)):
        (keeping.root / ACCOUNT / "othershare").stat()
