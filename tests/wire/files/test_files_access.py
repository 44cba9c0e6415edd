"""Who may do what: keys, links, host style, and everybody else."""

from __future__ import annotations

import socket
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.fileshare import (
    AccountSasPermissions,
    ResourceTypes,
    ShareClient,
    ShareServiceClient,
    generate_account_sas,
    generate_file_sas,
    generate_share_sas,
)

from tests.wire.files.conftest import ACCOUNT, CLIENT, KEYS, OTHER, Service, code

KEY = KEYS[ACCOUNT][0]


def soon(seconds: float = 600) -> datetime:
    """Returns a moment that many seconds from now."""
    return datetime.now(timezone.utc) + timedelta(seconds=seconds)


def refused(attempt: Any, *codes: str) -> None:
    """Checks that an attempt is answered 403 with one of these codes."""
    with pytest.raises(HttpResponseError) as caught:
        attempt()
    status, read = code(caught)
    assert status == 403
    assert read in (codes or ("AuthenticationFailed",))


def test_both_keys_of_an_account_are_good_and_those_of_another_are_not(service: Service, share: ShareClient) -> None:
    for key in KEYS[ACCOUNT]:
        assert service.share(share.share_name, key).get_share_properties()
    for key in KEYS[OTHER]:
        refused(service.share(share.share_name, key).get_share_properties)
    named = AzureNamedKeyCredential(OTHER, KEYS[OTHER][0])  # signs as the other account
    refused(service.share(share.share_name, named).get_share_properties)
    refused(service.share(share.share_name, account="nosuchaccount", credential=KEY).get_share_properties)


def test_a_refusal_is_xml_with_its_code_in_a_header_and_names_no_secret(
    service: Service, share: ShareClient, web: httpx.Client
) -> None:
    answer = web.get(f"{share.url}?restype=share", headers={"Authorization": f"SharedKey {ACCOUNT}:AAAA"})
    assert answer.status_code == 403
    assert answer.headers["x-ms-error-code"] == "AuthenticationFailed"
    assert answer.headers["content-type"] == "application/xml"
    assert "<Code>AuthenticationFailed</Code>" in answer.text
    assert not any(key in answer.text for keys in KEYS.values() for key in keys)
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize("scheme", ["", "Bearer token", "SharedKeyLite mystorageaccount:abc", "Basic YTpi"])
def test_a_request_without_key_or_link_is_refused(share: ShareClient, scheme: Any, web: httpx.Client) -> None:
    headers = {"Authorization": scheme} if scheme else {}
    for method in ("GET", "PUT", "DELETE", "HEAD", "POST"):
        answer = web.request(method, f"{share.url}?restype=share", headers=headers)
        assert (answer.status_code, answer.headers["x-ms-error-code"]) == (403, "AuthenticationFailed")


def test_a_clock_that_is_a_quarter_of_an_hour_off_is_refused(service: Service, share: ShareClient) -> None:
    service.ahead = 16 * 60
    try:
        refused(share.get_share_properties)
    finally:
        service.ahead = 0.0
    assert share.get_share_properties()


def test_host_style_is_served_and_signed_like_path_style(
    service: Service, share: ShareClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: look_up("127.0.0.1", *rest, **more))
    url = f"http://{ACCOUNT}.file.core.windows.net:{service.url.rpartition(':')[2]}"
    client = ShareServiceClient(url, AzureNamedKeyCredential(ACCOUNT, KEY), **CLIENT)
    file = client.get_share_client(share.share_name).get_file_client("f ü+%.txt")
    file.upload_file(b"by host", metadata={"a_b": "1", "ab": "2"})
    assert (folder / "f ü+%.txt").read_bytes() == b"by host"
    assert file.download_file().readall() == b"by host"
    assert share.share_name in [found.name for found in client.list_shares()]
    copy = client.get_share_client(share.share_name).get_file_client("copy")
    copy.start_copy_from_url(file.url)
    assert copy.rename_file("copied").download_file().readall() == b"by host"
    wrong = ShareServiceClient(url, AzureNamedKeyCredential(ACCOUNT, KEYS[OTHER][0]), **CLIENT)
    refused(lambda: list(wrong.list_shares()))


def test_a_share_link_permits_exactly_its_letters(service: Service, share: ShareClient) -> None:
    share.create_directory("d")
    share.get_file_client("d/f").upload_file(b"data")

    def using(letters: str) -> Any:
        token = generate_share_sas(ACCOUNT, share.share_name, KEY, permission=letters, expiry=soon())
        return service.share(share.share_name, token)

    mismatch = "AuthorizationPermissionMismatch"
    reader, lister, writer, maker, remover = (using(letter) for letter in "rlwcd")
    assert reader.get_file_client("d/f").download_file().readall() == b"data"
    assert reader.get_file_client("d/f").get_file_properties().size == 4
    assert [entry["name"] for entry in lister.list_directories_and_files("d")] == ["f"]
    writer.get_file_client("d/f").upload_file(b"more")
    maker.get_file_client("d/new").create_file(3)
    remover.get_file_client("d/new").delete_file()
    for client in (lister, writer, maker, remover):
        refused(client.get_file_client("d/f").download_file, mismatch)
    for client in (reader, writer, maker, remover):
        refused(lambda client=client: list(client.list_directories_and_files("d")), mismatch)
    for client in (reader, lister, remover):
        refused(lambda client=client: client.get_file_client("d/x").create_file(1), mismatch)
        refused(lambda client=client: client.create_directory("e"), mismatch)
    for client in (reader, lister, maker, remover):
        refused(lambda client=client: client.get_file_client("d/f").upload_range(b"1", 0, 1), mismatch)
        refused(lambda client=client: client.get_file_client("d/f").set_file_metadata({"a": "b"}), mismatch)
    for client in (reader, lister, writer, maker):
        refused(client.get_file_client("d/f").delete_file, mismatch)
    refused(lambda: maker.get_file_client("d/f").create_file(1), mismatch)  # may make, not replace
    everything = using("rcwdl")
    for attempt in (everything.delete_share, everything.create_share, lambda: everything.set_share_quota(5)):
        refused(attempt, mismatch)
    assert share.get_file_client("d/f").download_file().readall() == b"more"


def test_a_share_link_is_good_for_no_other_share(service: Service, share: ShareClient) -> None:
    other = service.share("quite-another-share")
    other.create_share()
    token = generate_share_sas(ACCOUNT, share.share_name, KEY, permission="rcwdl", expiry=soon())
    refused(lambda: list(service.share("quite-another-share", token).list_directories_and_files()))
    refused(lambda: list(service.account(credential=token).list_shares()))
    other.delete_share()


def test_a_file_link_is_good_for_that_file_alone(service: Service, share: ShareClient, web: httpx.Client) -> None:
    share.create_directory("d")
    for name in ("d/f ü.txt", "d/g"):
        share.get_file_client(name).upload_file(b"data")
    token = generate_file_sas(ACCOUNT, share.share_name, ["d", "f ü.txt"], KEY, permission="rcwd", expiry=soon())
    client = service.share(share.share_name, token)
    assert client.get_file_client("d/f ü.txt").download_file().readall() == b"data"
    refused(client.get_file_client("d/g").download_file)
    refused(lambda: list(client.list_directories_and_files("d")))
    refused(client.get_directory_client("d").get_directory_properties)
    answer = web.get(f"{client.get_file_client('d/f ü.txt').url}", headers={"Range": "bytes=1-2"})
    assert (answer.status_code, answer.content) == (206, b"at")


def test_an_account_link_keeps_to_its_kinds_of_resource(service: Service, share: ShareClient) -> None:
    share.get_file_client("f").upload_file(b"data")

    def using(kinds: ResourceTypes, letters: str = "rwdlc") -> Any:
        permissions: Any = AccountSasPermissions
        token = generate_account_sas(ACCOUNT, KEY, kinds, permissions.from_string(letters), soon())
        return service.account(credential=token)

    mismatch = "AuthorizationResourceTypeMismatch"
    assert share.share_name in [found.name for found in using(ResourceTypes(service=True)).list_shares()]
    refused(lambda: list(using(ResourceTypes(container=True, object=True)).list_shares()), mismatch)
    container = using(ResourceTypes(container=True)).get_share_client(share.share_name)
    assert [entry["name"] for entry in container.list_directories_and_files()] == ["f"]
    refused(container.get_file_client("f").download_file, mismatch)
    objects = using(ResourceTypes(object=True)).get_share_client(share.share_name)
    assert objects.get_file_client("f").download_file().readall() == b"data"
    refused(objects.delete_share, mismatch)
    made = using(ResourceTypes(container=True)).get_share_client("made-by-a-link")
    made.create_share()
    refused(using(ResourceTypes(container=True), "rwlc").get_share_client("made-by-a-link").delete_share,
            "AuthorizationPermissionMismatch")  # fmt: skip
    made.delete_share()


def test_a_link_that_is_not_for_files_is_refused(service: Service) -> None:
    token = generate_account_sas(ACCOUNT, KEY, "sco", "rl", soon(), services="b")
    refused(lambda: list(service.account(credential=token).list_shares()), "AuthorizationServiceMismatch")


def test_a_link_ends_begins_and_keeps_to_protocol_and_address(service: Service, share: ShareClient) -> None:
    share.get_file_client("f").upload_file(b"data")

    def using(**settings: Any) -> Any:
        token = generate_share_sas(ACCOUNT, share.share_name, KEY, permission="r", **{"expiry": soon(), **settings})
        return service.share(share.share_name, token).get_file_client("f").download_file

    assert using(start=soon(-60), ip="127.0.0.1", protocol="https,http")().readall() == b"data"
    assert using(ip="127.0.0.0-127.0.0.5")().readall() == b"data"
    refused(using(expiry=soon(-1)))
    refused(using(start=soon(60)))
    refused(using(ip="10.0.0.1"), "AuthorizationSourceIPMismatch")
    refused(using(protocol="https"), "AuthorizationProtocolMismatch")
    refused(using(policy_id="a policy that is not kept"))


def test_a_link_of_a_key_that_was_changed_is_refused(service: Service, share: ShareClient) -> None:
    share.get_file_client("f").upload_file(b"data")
    file = service.share(share.share_name, service.files.sas(ACCOUNT, share.share_name, "f", "r", time.time() + 60))
    assert file.get_file_client("f").download_file().readall() == b"data"
    before = KEYS[ACCOUNT]
    KEYS[ACCOUNT] = ["YSBuZXcga2V5", before[1]]
    try:
        refused(file.get_file_client("f").download_file)
        refused(share.get_share_properties)
    finally:
        KEYS[ACCOUNT] = before


def test_a_minted_link_ends_when_it_says(service: Service, share: ShareClient, web: httpx.Client) -> None:
    share.get_file_client("a b.txt").upload_file(b"data")
    token = service.files.sas(ACCOUNT, share.share_name, "a b.txt", "r", time.time() + 60)
    url = f"{share.url}/a%20b.txt?{token}"
    assert web.get(url).content == b"data"
    service.ahead = 61.0
    try:
        assert web.get(url).status_code == 403
    finally:
        service.ahead = 0.0


def test_a_link_sets_headers_of_the_download(service: Service, share: ShareClient, web: httpx.Client) -> None:
    share.get_file_client("f").upload_file(b"data")
    token = generate_file_sas(
        ACCOUNT, share.share_name, ["f"], KEY, permission="r", expiry=soon(), content_type="text/plain",
        content_disposition='attachment; filename="log ü.txt"', cache_control="no-store",
    )  # fmt: skip
    answer = web.get(f"{share.url}/f?{token}")
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["content-disposition"] == 'attachment; filename="log ü.txt"'
    assert answer.headers["cache-control"] == "no-store"
    token = generate_file_sas(
        ACCOUNT, share.share_name, ["f"], KEY, permission="r", expiry=soon(), content_type="a\r\nx-evil: 1"
    )
    answer = web.get(f"{share.url}/f?{token}")
    assert answer.status_code == 400
    assert "x-evil" not in answer.headers


def test_the_source_of_a_copy_must_be_readable_by_who_asks(service: Service, share: ShareClient) -> None:
    share.get_file_client("f").upload_file(b"data")
    foreign = service.share("of-the-other-account", account=OTHER)
    foreign.create_share()
    foreign.get_file_client("secret").upload_file(b"secret")
    copy = share.get_file_client("copy")
    with pytest.raises(ResourceNotFoundError) as caught:
        copy.start_copy_from_url(foreign.get_file_client("secret").url)
    assert code(caught)[1] == "CannotVerifyCopySource"
    link = generate_file_sas(OTHER, foreign.share_name, ["secret"], KEYS[OTHER][0], permission="r", expiry=soon())
    copy.start_copy_from_url(f"{foreign.get_file_client('secret').url}?{link}")
    assert copy.download_file().readall() == b"secret"
    assert link.rpartition("sig=")[2] not in str(copy.get_file_properties().copy.source)
    forged = link.replace("sp=r", "sp=rw")
    refused(lambda: copy.start_copy_from_url(f"{foreign.get_file_client('secret').url}?{forged}"))
    writer = generate_share_sas(ACCOUNT, share.share_name, KEY, permission="w", expiry=soon())
    by_link = service.share(share.share_name, writer).get_file_client("copy")
    refused(lambda: by_link.start_copy_from_url(share.get_file_client("f").url), "AuthorizationPermissionMismatch")
    refused(lambda: by_link.rename_file("moved"), "AuthorizationPermissionMismatch")
    for url in ("http://[", "", "/", "http://127.0.0.1/", f"{service.url}/{ACCOUNT}/x/../../etc/passwd"):
        with pytest.raises(HttpResponseError) as wrong:
            copy.start_copy_from_url(url)
        assert wrong.value.status_code in (400, 403, 404)
    foreign.delete_share()


def test_a_refused_upload_leaves_the_connection_usable(service: Service, share: ShareClient, folder: Path) -> None:
    token = generate_share_sas(ACCOUNT, share.share_name, KEY, permission="r", expiry=soon())
    with httpx.Client() as client:
        for _ in range(3):
            answer = client.put(f"{share.url}/f?comp=range&{token}", content=b"x" * (3 << 20))
            assert answer.status_code == 403
            assert client.get(f"{share.url}?restype=share&{token}").status_code == 200
    assert list(folder.iterdir()) == []


def test_without_the_control_plane_every_answer_is_confined_too(service: Service, share: ShareClient, web: Any) -> None:
    share.get_file_client("f.html").upload_file(b"<script>")
    token = service.files.sas(ACCOUNT, share.share_name, "f.html", "r", time.time() + 60)
    for url in (f"{share.url}/f.html?{token}", f"{share.url}/f.html", f"{share.url}/none?{token}"):
        headers = web.get(url).headers
        assert (headers["content-security-policy"], headers["x-content-type-options"]) == ("sandbox", "nosniff")
