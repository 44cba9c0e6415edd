"""azcopy, as npm brings it, against the blob service: every step is a command of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from azure.storage.blob import AccountSasPermissions, BlobServiceClient, ResourceTypes, generate_account_sas
from steps import ACCOUNT, KEY, run

PACKAGE = "@azure-tools/azcopy-linux"
PROGRAM = Path(sys.prefix) / "node_modules" / PACKAGE / "dist/bin/azcopy_linux_amd64"
URL = os.environ["BLOB_ENDPOINT"].rstrip("/")
SAS = generate_account_sas(
    ACCOUNT,
    KEY,
    resource_types=ResourceTypes(service=True, container=True, object=True),
    permission=AccountSasPermissions(read=True, write=True, list=True, delete=True, create=True, add=True),
    expiry=datetime.now(timezone.utc) + timedelta(hours=1),
)
HERE = Path.cwd()
CONTENT = os.urandom(9 << 20)


def azcopy(*words: str) -> str:
    if not PROGRAM.exists():
        install = [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--prefix",
            sys.prefix,
            f"{PACKAGE}@10.32.2",
        ]
        subprocess.run(install, check=True)
        PROGRAM.chmod(0o755)
    plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    own = {"AZCOPY_LOG_LOCATION": str(HERE / "log"), "AZCOPY_JOB_PLAN_LOCATION": str(HERE / "plan"), "HOME": str(HERE)}
    done = subprocess.run([str(PROGRAM), *words], env={**plain, **own}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout + done.stderr)[-300:].replace(SAS, "…")
    return done.stdout


def names(container: str) -> list[str]:
    client = BlobServiceClient(URL, KEY, use_env_settings=False)
    return sorted(blob.name for blob in client.get_container_client(container).list_blobs())


def make_containers() -> None:
    """By another client: `azcopy make` takes no address by number."""
    for name in ("data", "other"):
        BlobServiceClient(URL, KEY, use_env_settings=False).create_container(name)


def upload_a_folder_in_blocks() -> None:
    (HERE / "source/d").mkdir(parents=True)
    (HERE / "source/a.txt").write_text("a")
    (HERE / "source/d/large.bin").write_bytes(CONTENT)
    for path in (HERE / "source").rglob("*.*"):  # older than the second that Last-Modified of the blob names
        os.utime(path, (path.stat().st_mtime - 60,) * 2)
    options = ("--recursive", "--from-to", "LocalBlob", "--block-size-mb=4", "--put-md5")
    azcopy("copy", f"{HERE}/source/*", f"{URL}/data?{SAS}", *options)
    assert names("data") == ["a.txt", "d/large.bin"]


def list_blobs() -> None:
    assert "d/large.bin; Content Length: 9.00 MiB" in azcopy("list", f"{URL}/data?{SAS}", "--location", "Blob")


def download_a_blob_and_check_its_md5() -> None:
    more = ("--from-to", "BlobLocal", "--check-md5", "FailIfDifferentOrMissing")
    azcopy("copy", f"{URL}/data/d/large.bin?{SAS}", str(HERE / "back.bin"), *more)
    assert (HERE / "back.bin").read_bytes() == CONTENT


def sync_skips_what_is_the_same() -> None:
    (HERE / "source/b.txt").write_text("b")
    told = azcopy("sync", f"{HERE}/source", f"{URL}/data?{SAS}", "--from-to", "LocalBlob")
    assert names("data") == ["a.txt", "b.txt", "d/large.bin"]
    counts = [line for line in told.splitlines() if line.startswith("Number of Copy Transfers")]
    assert any(line.endswith(": 1") for line in counts), counts


def copy_between_containers() -> None:
    azcopy("copy", f"{URL}/data/*?{SAS}", f"{URL}/other?{SAS}", "--recursive", "--from-to", "BlobBlob")
    assert names("other") == names("data")


def remove_a_directory() -> None:
    azcopy("remove", f"{URL}/data/d?{SAS}", "--recursive", "--from-to", "BlobTrash")
    assert names("data") == ["a.txt", "b.txt"]


run(
    [
        make_containers,
        upload_a_folder_in_blocks,
        list_blobs,
        download_a_blob_and_check_its_md5,
        sync_skips_what_is_the_same,
        copy_between_containers,
        remove_a_directory,
    ]
)
