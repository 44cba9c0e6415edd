"""Names with blanks, signs, accents, CJK and emoji go round through the real client."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import ShareClient

from tests.wire.files.conftest import Service

CASES = Path(__file__).parents[2] / "data" / "storage"
NAMES = [
    "with space.txt", " leading and trailing ", "a+b.txt", "50% done.txt", "100%25", "naïve-日本語.h5", "😀🎉.png",
    "e\u0301 decomposed", "é composed", "quote'\"`.txt", "semi;colon&and=equals", "hash#tag", "tilde~", "a,b", "[x]{y}",
    "<tag>", "back\\slash", "colon:name", "star*name", "dot.", ".hidden", "...", "x" * 255, "日" * 85, "-rf", "$HOME",
    "tab\tname", "line\nbreak", "bell\x07", "\u2028separator", "\ufffe", "question?mark",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_goes_round(share: ShareClient, folder: Path, name: str) -> None:
    share.create_directory("ordner ü")
    for path in (name, f"ordner ü/{name}"):
        file = (
            share.get_directory_client("ordner ü").get_file_client(name) if "/" in path else share.get_file_client(name)
        )
        file.upload_file(b"data", metadata={"k": "v"})
        assert (folder / path).read_bytes() == b"data"
        assert file.download_file().readall() == b"data"
        assert file.get_file_properties().metadata == {"k": "v"}
    assert [entry["name"] for entry in share.list_directories_and_files("ordner ü")] == [name]
    renamed = share.get_file_client(name).rename_file("plain")
    renamed.start_copy_from_url(share.get_directory_client("ordner ü").get_file_client(name).url)
    share.get_directory_client("ordner ü").delete_file(name)
    assert os.listdir(folder / "ordner ü") == []


def test_case_names_basic(share: ShareClient, folder: Path) -> None:
    path = CASES / "names-basic.json"
    names = json.loads(path.read_text())
    for name in names:
        share.get_file_client(name).upload_file(name.encode())
    assert sorted(entry["name"] for entry in share.list_directories_and_files()) == sorted(names)
    seen = subprocess.run(
        ["ls", "-1", folder], capture_output=True, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    assert sorted(seen.stdout.decode().splitlines()) == sorted(names)  # as a job in the mounted directory sees them
    for name in names:
        assert share.get_file_client(name).download_file().readall() == name.encode()
        share.get_file_client(name).delete_file()
    assert os.listdir(folder) == []


def test_separators_may_come_encoded_or_not(
    service: Service, share: ShareClient, folder: Path, web: httpx.Client
) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "f").write_bytes(b"data")
    for path in ("a/b/f", "a%2Fb%2Ff", "a%2fb/f", "/a//b/f", "a/b/f/"):
        token = service.files.sas("mystorageaccount", share.share_name, "a/b/f", "r", 4e9)
        assert web.get(f"{share.url}/{path}?{token}").content == b"data", path


def test_a_name_that_is_too_long_is_refused(share: ShareClient) -> None:
    for name in ("x" * 256, "日" * 86, "/".join(["d"] * 5000)):
        with pytest.raises(HttpResponseError) as caught:
            share.get_file_client(name).upload_file(b"1")
        assert caught.value.status_code in (400, 404)


def test_names_in_bytes_that_are_not_utf8_are_listed_and_read(
    service: Service, share: ShareClient, folder: Path, web: httpx.Client
) -> None:
    name = os.fsdecode(b"latin-\xe9.txt")
    (folder / name).write_bytes(b"data")
    token = service.files.sas("mystorageaccount", share.share_name, "", "rl", 4e9)
    listed = web.get(f"{share.url}?restype=directory&comp=list&{token}").text
    assert '<Name Encoded="true">latin-%E9.txt</Name>' in listed
    assert web.get(f"{share.url}/latin-%E9.txt?{token}").content == b"data"
    assert [unquote(entry["name"]) for entry in share.list_directories_and_files()]
