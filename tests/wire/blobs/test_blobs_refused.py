"""What the blob service refuses, by name: credentials, links, absent things, names, and what it does not have."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import (
    AccessPolicy,
    BlobClient,
    ContainerClient,
    ContainerSasPermissions,
    generate_account_sas,
    generate_blob_sas,
    generate_container_sas,
)

from batchhvd.service.blobs.route import actions
from batchhvd.service.http import limits
from tests.wire.blobs.conftest import ACCOUNT, CLIENT, KEYS, OTHER, BlobPlace, code

SOON = datetime.now(timezone.utc) + timedelta(hours=1)
KEY = KEYS[ACCOUNT][0]


def refused(act: Callable[[], Any]) -> tuple[int | None, str]:
    with pytest.raises(HttpResponseError) as error:
        act()
    return code(error)


def test_only_a_key_of_the_account_opens_it(container: ContainerClient, place: BlobPlace) -> None:
    name = str(container.container_name)
    assert [found.name for found in place.account(KEYS[ACCOUNT][1]).list_containers() if found.name == name] == [name]
    for client in (place.account(KEYS[OTHER][0]), place.account("AAAA"), place.account(name="nobody1", credential=KEY)):
        assert refused(client.list_containers().next) == (403, "AuthenticationFailed")
    place.ahead = 16 * 60
    try:
        assert refused(lambda: list(container.list_blobs())) == (403, "AuthenticationFailed")
    finally:
        place.ahead = 0
    assert name not in [found.name for found in place.account(name=OTHER).list_containers()]


def test_nothing_is_open_without_a_credential(container: ContainerClient, web: httpx.Client) -> None:
    container.upload_blob("x", b"1")
    answer = web.get(f"{container.url}/x")
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (403, "AuthenticationFailed")
    assert KEY not in answer.text
    assert answer.headers["content-security-policy"] == "sandbox"


def test_a_link_opens_what_it_names_for_as_long_as_it_says(container: ContainerClient, place: BlobPlace) -> None:
    name, url = str(container.container_name), str(container.url)
    container.upload_blob("a/b", b"1")
    container.upload_blob("c", b"2")
    link = generate_blob_sas(ACCOUNT, name, "a/b", account_key=KEY, permission="r", expiry=SOON)
    blob = BlobClient.from_blob_url(f"{url}/a/b?{link}", **CLIENT)
    assert blob.download_blob().readall() == b"1"
    assert refused(blob.delete_blob) == (403, "AuthorizationPermissionMismatch")
    other = BlobClient.from_blob_url(f"{url}/c?{link}", **CLIENT)
    assert refused(other.download_blob) == (403, "AuthenticationFailed")
    place.ahead = 3601
    try:
        assert refused(blob.download_blob) == (403, "AuthenticationFailed")
    finally:
        place.ahead = 0


def test_a_link_to_a_container_lists_and_writes_but_does_not_manage(container: ContainerClient) -> None:
    name, url = str(container.container_name), str(container.url)
    reading = generate_container_sas(ACCOUNT, name, account_key=KEY, permission="rl", expiry=SOON)
    adding = ContainerSasPermissions(create=True)
    adding_link = generate_container_sas(ACCOUNT, name, account_key=KEY, permission=adding, expiry=SOON)
    container.upload_blob("x", b"1")
    reader = ContainerClient.from_container_url(f"{url}?{reading}", **CLIENT)
    assert [blob.name for blob in reader.list_blobs()] == ["x"]
    assert refused(lambda: reader.upload_blob("y", b"")) == (403, "AuthorizationPermissionMismatch")
    assert refused(reader.delete_container) == (403, "AuthorizationPermissionMismatch")
    adder = ContainerClient.from_container_url(f"{url}?{adding_link}", **CLIENT)
    adder.upload_blob("y", b"new")
    assert refused(lambda: adder.upload_blob("x", b"2", overwrite=True)) == (403, "AuthorizationPermissionMismatch")
    assert container.download_blob("x").readall() == b"1"


def test_account_links_and_stored_policies(container: ContainerClient, place: BlobPlace) -> None:
    name = str(container.container_name)
    whole = generate_account_sas(ACCOUNT, KEY, "sco", "rwdlc", SOON)
    place.account(whole).create_container("by-link")
    place.account(whole).delete_container("by-link")
    for_files = whole.replace("ss=b", "ss=f")
    assert refused(lambda: list(place.account(for_files).list_containers())) == (403, "AuthorizationServiceMismatch")
    container.upload_blob("x", b"1")
    container.set_container_access_policy({"p": AccessPolicy("r", SOON, datetime.now(timezone.utc))})
    link = generate_blob_sas(ACCOUNT, name, "x", account_key=KEY, policy_id="p")
    blob = BlobClient.from_blob_url(f"{container.url}/x?{link}", **CLIENT)
    assert blob.download_blob().readall() == b"1"
    container.set_container_access_policy({})
    assert refused(blob.download_blob) == (403, "AuthenticationFailed")


def test_absent_things_are_named(container: ContainerClient, place: BlobPlace) -> None:
    absent = place.account().get_container_client("absent")
    assert refused(absent.get_container_properties) == (404, "ContainerNotFound")
    assert refused(lambda: absent.upload_blob("x", b"")) == (404, "ContainerNotFound")
    assert refused(lambda: absent.get_blob_client("x").stage_block("1", b"")) == (404, "ContainerNotFound")
    assert refused(lambda: list(absent.list_blobs())) == (404, "ContainerNotFound")
    assert refused(absent.delete_container) == (404, "ContainerNotFound")
    container.upload_blob("a/b", b"")
    for name in ("none", "a", "a/b/c"):
        blob = container.get_blob_client(name)
        for act in (blob.download_blob, blob.get_blob_properties, blob.delete_blob, blob.get_block_list):
            assert refused(act) == (404, "BlobNotFound"), name
    again = place.account().get_container_client(str(container.container_name))
    assert refused(again.create_container) == (409, "ContainerAlreadyExists")


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("a", 409, "BlobNameConflict"),
        ("a/b/c", 409, "BlobNameConflict"),
        ("x/", 400, "InvalidResourceName"),
        ("x//y", 400, "InvalidResourceName"),
        ("ü" * 128, 400, "InvalidResourceName"),
        ("ab/" * 342, 400, "InvalidResourceName"),
    ],
)
def test_names_that_no_file_can_have_are_refused(
    container: ContainerClient, name: str, status: int, error: str
) -> None:
    container.upload_blob("a/b", b"stays")
    assert refused(lambda: container.upload_blob(name, b"1", overwrite=True)) == (status, error)
    assert [blob.name for blob in container.list_blobs()] == ["a/b"]
    assert container.download_blob("a/b").readall() == b"stays"


@pytest.mark.parametrize("path", ["x/../../y", "..", "%2e%2e/y", "x/%2e%2e/%2e%2e/%2e%2e/y", "./x", "x%00y"])
def test_no_path_leaves_the_container(container: ContainerClient, place: BlobPlace, path: str) -> None:
    host, _, port = place.url.removeprefix("http://").partition(":")
    link = generate_container_sas(
        ACCOUNT, str(container.container_name), account_key=KEY, permission="rwcdl", expiry=SOON
    )
    with socket.create_connection((host, int(port)), 20) as line:  # a client would tidy such a path up
        head = f"PUT /{ACCOUNT}/{container.container_name}/{path}?{link} HTTP/1.1\r\nHost: {host}\r\n"
        line.sendall(f"{head}x-ms-blob-type: BlockBlob\r\nContent-Length: 1\r\n\r\nx".encode())
        assert line.recv(1000).startswith(b"HTTP/1.1 400")
    assert not [blob.name for blob in container.list_blobs()]


def test_what_is_not_here_is_refused_by_name(container: ContainerClient, place: BlobPlace) -> None:
    blob = container.upload_blob("x", b"1")
    missing = (501, "NotImplemented")
    assert refused(blob.create_snapshot) == missing
    assert refused(blob.acquire_lease) == missing
    assert refused(container.acquire_lease) == missing
    assert refused(lambda: container.upload_blob("p", b"", blob_type="PageBlob", length=512)) == missing
    assert refused(lambda: container.upload_blob("p", b"1", blob_type="AppendBlob")) == missing
    assert refused(lambda: blob.set_standard_blob_tier("Cool")) == missing
    assert refused(lambda: blob.set_blob_tags({"a": "b"})) == missing
    assert refused(lambda: blob.delete_blob(delete_snapshots="only")) == missing
    assert refused(lambda: place.account().create_container("public", public_access="blob")) == missing
    assert refused(lambda: container.delete_blobs("x")) == missing
    assert refused(lambda: blob.set_blob_metadata({}, lease="1b2cd3b8-0d29-4b3a-9f1e-2f1d8b6a9c11")) == missing
    assert blob.download_blob().readall() == b"1"


def test_headers_and_parameters_that_could_mean_something_are_refused(
    container: ContainerClient, web: httpx.Client
) -> None:
    link = generate_container_sas(
        ACCOUNT, str(container.container_name), account_key=KEY, permission="rwcdl", expiry=SOON
    )
    container.upload_blob("x", b"1")
    url = f"{container.url}/x?{link}"
    answer = web.put(url, content=b"2", headers={"x-ms-blob-type": "BlockBlob", "x-ms-nonsense": "1"})
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (400, "UnsupportedHeader")
    answer = web.get(f"{url}&snapshot=2020-01-01T00:00:00.0000000Z")
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (501, "NotImplemented")
    answer = web.delete(f"{url}&deletetype=permanent")
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (400, "UnsupportedQueryParameter")
    answer = web.put(url, content=b"2")
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (400, "MissingRequiredHeader")
    assert container.download_blob("x").readall() == b"1"


def test_bodies_too_large_or_of_no_known_size_are_refused(container: ContainerClient, place: BlobPlace) -> None:
    assert max(action.body for _, action in actions()) == limits.BLOB_BODY_BYTES
    host, _, port = place.url.removeprefix("http://").partition(":")
    link = generate_container_sas(ACCOUNT, str(container.container_name), account_key=KEY, permission="w", expiry=SOON)
    for length, status in (("Content-Length: 5242880001", b"413"), ("Transfer-Encoding: chunked", b"411")):
        with socket.create_connection((host, int(port)), 20) as line:
            head = f"PUT /{ACCOUNT}/{container.container_name}/x?{link} HTTP/1.1\r\nHost: {host}\r\n"
            line.sendall(f"{head}x-ms-blob-type: BlockBlob\r\n{length}\r\n\r\n".encode())
            assert line.recv(1000).startswith(b"HTTP/1.1 " + status)
