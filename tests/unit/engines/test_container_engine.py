"""Container engines without any of them: their command lines, names, archives, variables, and which one is chosen."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from batchhvd.engines import containers
from batchhvd.errors import EngineError, EngineMissingError
from batchhvd.node.container import image, variables
from batchhvd.node.container.engine import NAMES, ContainerEngine


@pytest.mark.parametrize("name", NAMES)
def test_the_words_of_each_engine(name: str) -> None:
    """Mounts, devices and limits are options, the image comes after all of them, and no value is one of ours."""
    engine = ContainerEngine(name)
    words = engine.run("n", "img", label="/t:0", binds=["/a b", "/c"], shm="1g", gpus=["/dev/nvidia0"])
    assert words[0] == name and "img" in words
    if name == "apptainer":
        assert {"--bind=/a b", "--nv", "--writable-tmpfs"} <= set(words) and words[-2:] == ["img", "n"]
        assert engine.execute("n", "/w", "/v", "/p", "x")[-1] == "x"
        return
    assert {"--volume=/a b:/a b", "--rm", "--interactive", "batchhvd.node=/t:0"} <= set(words)
    for option, value in (
        ("--network", "host"),
        ("--entrypoint", "/bin/sh"),
        ("--shm-size", "1g"),
        ("--pull", "never"),
    ):
        assert words[words.index(option) + 1] == value
    assert words.index("img") > max(index for index, word in enumerate(words) if word.startswith("--"))
    assert any("nvidia" in word or word == "all" for word in words)
    assert "--user" in engine.execute("n", "/w", "/v", "/p", "x")


@pytest.mark.parametrize("path", ["/a:b", "/a,b", "/a\nb"])
def test_a_path_that_would_be_read_as_two_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="cannot be mounted"):
        ContainerEngine("podman").run("n", "i", label="l", binds=[path])


@pytest.mark.parametrize(
    ("name", "server", "full"),
    [
        ("ubuntu", "", "docker.io/library/ubuntu"),
        ("team/app:1", "", "docker.io/team/app:1"),
        ("r.example.org/app", "", "r.example.org/app"),
        ("localhost/app", "", "localhost/app"),
        ("localhost:5000/app", "", "localhost:5000/app"),
        ("app:2", "r.example.org", "r.example.org/app:2"),
        ("r.example.org/app", "r.example.org", "r.example.org/app"),
    ],
)
def test_names_are_completed_as_docker_does(name: str, server: str, full: str) -> None:
    assert image.full_name(name, server) == full


def test_variables_reach_a_shell_byte_for_byte(tmp_path: Path) -> None:
    wanted = {"A": 'it\'s $HOME `x` \\ "q"\nnext é', "EMPTY": "", "with.dot": "x", "with-hyphen": "y"}
    (tmp_path / "v").write_bytes(variables.exports(wanted))
    code = f". {tmp_path}/v; exec {sys.executable} -c 'import os, json; print(json.dumps(dict(os.environ)))'"
    done = subprocess.run(["/bin/sh", "-c", code], capture_output=True, text=True, check=True, env={})
    found = json.loads(done.stdout)
    assert {name: found[name] for name in ("A", "EMPTY")} == {name: wanted[name] for name in ("A", "EMPTY")}
    assert variables.unset_names(wanted) == ["with.dot", "with-hyphen"]


def test_credentials_are_in_a_private_file_under_the_registrys_name(tmp_path: Path) -> None:
    box: Any = {"image": "r.example.org/a", "server": "", "username": "me", "password": "hunter2"}
    image.write_credentials(tmp_path, box)
    path = tmp_path / "config.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(json.loads(path.read_text())["auths"]) == ["r.example.org"]
    image.write_credentials(tmp_path, box | {"password": ""})
    assert json.loads(path.read_text()) == {"auths": {}}


def _archive(path: Path, **files: object) -> str:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            data = json.dumps(content).encode()
            member = tarfile.TarInfo(f"{name}.json")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return str(path)


def test_what_an_archive_calls_its_images(tmp_path: Path) -> None:
    named = {"annotations": {"org.opencontainers.image.ref.name": "a:1"}}
    assert image.names_in(_archive(tmp_path / "o", index={"manifests": [named, {}]})) == ["a:1"]
    assert image.names_in(_archive(tmp_path / "d", manifest=[{"RepoTags": ["b:1", "c:2"]}, {}])) == ["b:1", "c:2"]
    nothing: list[dict[str, object]] = [{"other": {}}, {}]
    for bad in nothing:
        with pytest.raises(ValueError, match="not an archive of an image"):
            image.names_in(_archive(tmp_path / "x", **bad))
    (tmp_path / "cut").write_bytes(b"no tar")
    with pytest.raises(ValueError, match="damaged, or not an archive"):
        image.names_in(str(tmp_path / "cut"))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole search path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def _install(folder: Path, name: str, code: int) -> None:
    (folder / name).write_text(f"#!/bin/sh\necho {name} says no >&2\nexit {code}\n")
    (folder / name).chmod(0o755)


def test_auto_takes_the_first_engine_that_runs_and_says_why_there_is_none(programs: Path) -> None:
    engine, why = containers.choose("auto")
    assert engine == "" and why == "podman is not installed; docker is not installed; apptainer is not installed"
    _install(programs, "podman", 125)
    _install(programs, "docker", 0)
    assert containers.choose("auto") == ("docker", "")
    with pytest.raises(EngineMissingError, match="podman does not run: podman says no"):
        containers.choose("podman")


def test_an_engine_that_is_named_is_heeded_or_refused(programs: Path) -> None:
    assert containers.choose("off")[0] == ""
    with pytest.raises(EngineMissingError, match="apptainer is not installed"):
        containers.choose("apptainer")
    with pytest.raises(EngineError, match="'rkt' is none of auto, podman"):
        containers.choose("rkt")
