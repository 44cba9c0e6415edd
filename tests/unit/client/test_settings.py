"""The settings of a user and a project: which one counts, where it comes from, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchhvd import ConflictError, SpecError
from batchhvd.cli import main as cli
from batchhvd.wire import configuration
from batchhvd.wire.service_options import ServiceOptions


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's folder of settings and a project of two levels; the environment sets nothing."""
    for variable in configuration.VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    (tmp_path / "project" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "inner")
    return tmp_path


def write(place: Path, user: str = "", project: str = "") -> None:
    (place / "config" / "batchhvd.toml").write_text(user)
    (place / "project" / "pyproject.toml").write_text(f"[project]\nname = 'x'\n\n[tool.batchhvd]\n{project}\n")


def found(name: str) -> tuple[object, str]:
    one = configuration.read().settings[name]
    return one.value, one.source


def test_the_nearer_place_counts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place, "# mine\ngroup = 'mine'\nengine = 'slurm'\nidle = 60\n", "engine = 'processes'\nroot = 'state'")
    assert found("group") == ("mine", f"{place}/config/batchhvd.toml:2")
    assert found("engine") == ("processes", f"{place}/project/pyproject.toml:5")
    assert found("root")[0] == str(place / "project/state")  # relative to its file
    monkeypatch.setenv("BATCHHVD_GROUP", "told")
    assert found("group") == ("told", "$BATCHHVD_GROUP")
    assert configuration.read().text("workspace") == "runs"  # a default


def test_root_and_endpoint_name_one_service(place: Path) -> None:
    write(place, "endpoint = 'https://example.org'", "root = '/r'")
    assert "endpoint" not in configuration.read().settings
    write(place, "root = '/r'", "endpoint = 'http://127.0.0.1:1'")
    assert "root" not in configuration.read().settings
    write(place, "root = '/r'\nendpoint = 'http://127.0.0.1:1'")
    with pytest.raises(SpecError, match="root and endpoint are both set"):
        configuration.read()


@pytest.mark.parametrize(
    ("user", "project", "words"),
    [
        ("\ngruop = 'x'", "", r"config/batchhvd\.toml:2: 'gruop' is not a setting.*did you mean 'group'"),
        ("", "token = 'x'", r"project/pyproject\.toml:5: 'token' is not a setting.*known are: root"),
        ("port = true", "", "'port' is True.*it must be a port"),
        ("prepare = 'later'", "", "'prepare' is 'later'.*'overlay' or 'host' or 'skip'"),
        ("engine_options = {a = [1]}", "", "'engine_options' is"),
        ("allow_directory = '/data'", "", "it must be a list of paths"),
        ("group = ''", "", "it must be a name"),
        ("a b", "", r"config/batchhvd\.toml is not TOML"),
        ("", "endpoint = 'https://example.org'", "cannot name an endpoint on another machine.*your token"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(place: Path, user: str, project: str, words: str) -> None:
    write(place, user, project)
    with pytest.raises(SpecError, match=words):
        configuration.read()
    assert cli.run(["group", "list"]) == 2  # before a service is started


def test_another_users_project_is_not_heeded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place, "", "group = 'theirs'")
    owner = os.stat(place / "project/pyproject.toml").st_uid
    if owner == 0:
        os.chown(place / "project/pyproject.toml", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.warns(UserWarning, match="is not heeded: the file is another user's"):
        assert "group" not in configuration.read().settings


def test_config_shows_where_each_value_comes_from(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(place, "engine_options = {partition = 'gpu'}")
    assert cli.run(["config", "-o", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["engine_options"]["value"] == {"partition": "gpu"}
    assert rows["engine_options"]["source"].endswith("batchhvd.toml:1")
    assert rows["group"] == {"name": "group", "value": "batchhvd", "source": "default"}
    assert rows["endpoint"] == {"name": "endpoint", "value": None, "source": ""}
    assert "token" not in rows


def options(**given: Any) -> ServiceOptions:
    names = ("engine", "engine_options", "prepare", "allow_directory", "port", "idle")
    return ServiceOptions.of(configuration.read(), **{**dict.fromkeys(names), **given})


def test_how_the_service_is_started(place: Path) -> None:
    assert options().words() == ["--engine", "processes", "--prepare", "overlay", "--port", "0", "--idle", "3600"]
    write(place, "engine = 'slurm'\nidle = 0\nallow_directory = ['data']\n[engine_options]\npartition = 'gpu'\n")
    words = options(prepare="skip").words()
    assert words[:4] == ["--engine", "slurm", "--prepare", "skip"] and words[6:8] == ["--idle", "0"]
    assert words[8:] == ["--option=partition=gpu", f"--allow-directory={place}/config/data"]
    assert options(engine="processes").words()[8:] == words[9:]  # the options are the other engine's
    assert "--containers=podman" in options(containers="podman").words()
    with pytest.raises(SpecError, match="containers='rkt' is not known"):
        options(containers="rkt")
    with pytest.raises(SpecError, match="prepare='late' is not known"):
        options(prepare="late")


def test_a_service_that_runs_in_another_way_is_refused(place: Path) -> None:
    about = {"engine": "processes", "options": {"prepare": "skip", "engine_options": {}, "allow_directory": []}}
    about["options"]["idle"] = 3600  # type: ignore[index]  # a value of the dictionary above
    options().check("/r", about)
    options(engine="processes", prepare="skip", allow_directory=[], engine_options={}).check("/r", about)
    with pytest.raises(ConflictError, match=r"runs with prepare 'skip', not with 'host'.*stop_service"):
        options(prepare="host").check("/r", about)
    with pytest.warns(UserWarning, match="idle 3600, not with 5"):
        options(idle=5).check("/r", about)
    write(place, "engine = 'slurm'")
    with pytest.raises(ConflictError, match=r"engine 'processes', not with 'slurm' \(from .*batchhvd\.toml:1\)"):
        options().check("/r", about)
    options(prepare="host").check("/r", {"engine": "slurm"})  # an older service does not say


def test_what_a_developer_has_set_does_not_reach_the_tests(tmp_path: Path) -> None:
    (tmp_path / "batchhvd.toml").write_text("port = 99999\n")
    (tmp_path / "pip").mkdir()
    code = "import conftest, os; from batchhvd.wire import configuration as c; print(sorted(c.read().settings))"
    own = {"XDG_CONFIG_HOME": str(tmp_path), "BATCHHVD_GROUP": "mine", "BATCHHVD_ENDPOINT": "http://127.0.0.1:1"}
    code += "\nprint(os.listdir(os.environ['XDG_CONFIG_HOME']))"
    here = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | own, capture_output=True, text=True, cwd=here)
    assert done.stdout == "['containers']\n['pip']\n", done.stderr
