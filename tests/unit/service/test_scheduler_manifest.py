"""The manifest of a job's outputs names every file with its size and the digest of all of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from batchhvd.service.scheduler import manifest

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB + 7])
def test_the_digest_is_of_the_whole_file(tmp_path: Path, size: int) -> None:
    content = hashlib.shake_128(b"seed").digest(size)
    (tmp_path / "weights.h5").write_bytes(content)
    manifest.seal([tmp_path], "/j", "now")
    sealed = json.loads((tmp_path / manifest.NAME).read_text())["files"]["weights.h5"]
    assert sealed == {"size": size, "sha256": hashlib.sha256(content).hexdigest()}


def test_files_that_differ_far_from_their_beginning_have_different_digests(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"\0" * 3 * MIB + name.encode())
    manifest.seal([tmp_path], "/j", "now")
    files = json.loads((tmp_path / manifest.NAME).read_text())["files"]
    assert files["a"]["sha256"] != files["b"]["sha256"]


def test_links_and_the_manifest_itself_are_left_out(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    (outputs / "sub").mkdir(parents=True)
    (outputs / "sub" / manifest.NAME).write_text("the job's own")
    (outputs / "link").symlink_to(tmp_path)
    for _ in range(2):
        manifest.seal([outputs], "/j", "now")
    document = json.loads((outputs / manifest.NAME).read_text())
    assert list(document["files"]) == [f"sub/{manifest.NAME}"] and document["job"] == "/j"
