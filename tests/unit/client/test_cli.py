"""The command line without a service: help, mistakes, exit codes, output."""

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import pytest
from attrs import field, frozen

from batchhvd import errors
from batchhvd.cli import main as cli
from batchhvd.cli.cluster import _key, nodes
from batchhvd.cli.flows import checkup
from batchhvd.cli.frame import printing as output
from batchhvd.cli.frame.context import told
from batchhvd.spec.job import AutoScale

DATA = Path(__file__).parents[2] / "data"
WHERE = ["-g", "g", "-w", "w", "-e", "e", "-c", "c"]


def commands(command: click.Command, *names: str) -> Iterator[Any]:
    yield names
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *names, name)


@pytest.mark.parametrize("names", list(commands(cli.main_group)), ids=" ".join)
def test_every_command_has_help(names: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*names, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: {' '.join(['batchhvd', *names])} ")
    assert len(text.splitlines()[2]) > 10


@pytest.mark.parametrize(
    "names", [names for names in commands(cli.main_group) if len(names) < 2 and names != ("completion",)], ids=" ".join
)
@pytest.mark.parametrize("width", ["80", "50"])
def test_a_list_of_verbs_has_whole_sentences(
    names: Any, width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert cli.run([*names, "--help"]) == 0
    verbs = capsys.readouterr().out.partition("Commands:")[2]
    assert not [line for line in verbs.splitlines() if line.endswith("...")]


def test_a_list_says_of_what() -> None:
    for noun, words in {"cluster": "clusters of a workspace", "storage": "storage accounts of a group"}.items():
        verbs = cli.main_group.commands[noun]
        assert isinstance(verbs, click.Group) and verbs.commands["list"].help == f"Lists the {words}."


def test_the_verbs_are_there() -> None:
    found = set(commands(cli.main_group))
    for kind in ("group", "workspace", "experiment", "cluster", "storage", "share", "job"):
        assert {(kind, verb) for verb in ("create", "show", "list", "delete")} <= found
    assert {("job", verb) for verb in ("submit", "logs", "explain", "terminate", "wait", "files")} <= found
    assert {("cluster", "resize"), ("share", "upload"), ("share", "download")} <= found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["job", "submit", "{bad}", *WHERE], ["bad jöb.json:1:17", '"nodeCuont"', 'did you mean "nodeCount"']),
        (["plan", "{tutorial}", *WHERE], ["AZURE_BATCHAI_STORAGE_ACCOUNT", "--storage-account-name"]),
        (["job", "submit", "nicht da.json", *WHERE], ["nicht da.json", "No such file"]),
        (["job", "submit", "{bad}", "-w", "w", "-e", "e", "-c", "c"], ["--group", "BATCHHVD_GROUP"]),
        (["job", "submit", "{bad}", *WHERE, "--mount", "x"], ["PATH=ACCOUNT/SHARE"]),
        (["cluster", "create", "c", *WHERE[:4]], ["vmSize is missing", "--vm-size"]),
        (["cluster", "create", "c", *WHERE[:4], "-f", "{priority}"], ["vmSize is missing", "--vm-size"]),
        (["cluster", "resize", "c", *WHERE[:4]], ["--target"]),
        (["cluster", "resize", "c", *WHERE[:4], "--min", "1"], ["give both --min and --max"]),
        (["group", "create", "g", "--tag", "x"], ["NAME=VALUE"]),
        (["group", "list", "--query", "[].{"], ["not a JMESPath expression"]),
        (["group", "list", "-o", "xml"], ["table", "json"]),
        (["nonsense"], ["No such command"]),
        (["tutorial", "--data", "nicht da"], ["folder nicht da does not exist", "cifar-10-batches-py"]),
        (["tutorial", "--epochs", "0"], ["--epochs"]),
        (["--endpoint", "http://example.org", "group", "list"], ["https"]),
    ],
)
def test_a_mistake_is_said_in_a_line_and_ends_with_2(
    arguments: Any, words: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_BATCHAI_STORAGE_ACCOUNT", "BATCHHVD_GROUP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BATCHHVD_ROOT", str(tmp_path / "no röot"))
    bad = tmp_path / "bad jöb.json"
    bad.write_text('{"properties": {"nodeCuont": 1}}', encoding="utf-8")
    files = {
        "{bad}": str(bad),
        "{tutorial}": str(DATA / "jobs/tutorial-4-nodes.json"),
        "{priority}": str(DATA / "clusters/only-priority-2018-03-01.json"),
    }
    assert cli.run([files.get(argument, argument) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert all(word in said for word in words), said
    assert not (tmp_path / "no röot").exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFoundError("x"), 3),
        (errors.UnavailableError("x"), 4),
        (errors.WaitTimeoutError("x"), 5),
        (errors.SpecError("x"), 2),
        (errors.BadRequestError("x"), 1),
        (errors.JobFailedError("x", exit_code=9), 1),
        (errors.EngineMissingError("x"), 1),
    ],
)
def test_exit_codes(error: Any, code: int) -> None:
    assert cli.code_of(error) == code


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.main_group, "main", interrupted)
    assert cli.run([]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_numbers_of_nodes() -> None:
    assert nodes(3, None, None) == 3
    assert nodes(None, 0, 4) == AutoScale(0, 4)
    assert nodes(None, None, None) is None
    with pytest.raises(click.UsageError):
        nodes(1, 0, 4)


@frozen
class Thing:
    """A resource as commands see one."""

    name: str
    document: dict[str, Any]
    facts: dict[str, Any]
    kind: str = "job"
    id: str = field(default="/the/id")

    def _facts(self) -> Any:
        return self.facts


THING = Thing("a", {"name": "a", "properties": {"executionState": "queued", "n": 1}}, {"state": "queued", "when": None})


def test_json_has_the_properties_lifted_to_the_top(capsys: pytest.CaptureFixture[str]) -> None:
    output.display([THING], "json")
    assert json.loads(capsys.readouterr().out) == [{"id": "/the/id", "name": "a", "executionState": "queued", "n": 1}]


def test_a_query_gives_json_and_with_table_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    output.display(THING, None, output.compiled("executionState"))
    assert capsys.readouterr().out == '"queued"\n'
    output.display([THING], "table", output.compiled("[].{n: n, s: executionState}"))
    assert capsys.readouterr().out == "n  s\n1  queued\n"


def test_a_table_loses_nothing_in_a_pipe_but_columns_that_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output.display([{"name": "x" * 300, "yes": True, "no": False, "at": None, "list": [1, "ä"]}], None)
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "yes", "list"]
    assert row.split() == ["x" * 300, "yes", "[1,", '"ä"]']


def test_an_empty_list_says_so_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    output.display([], None)
    output.display([], "json")
    captured = capsys.readouterr()
    assert captured.out == "[]\n"
    assert captured.err == "none\n"


def test_times_are_iso_8601_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    output.display({"at": datetime(2026, 1, 2, tzinfo=timezone.utc)}, "json")
    assert json.loads(capsys.readouterr().out) == {"at": "2026-01-02T00:00:00+00:00"}


def test_what_few_need_is_no_illness() -> None:
    ok, optional = (
        checkup.CheckResult("a", "ok", "1"),
        checkup.CheckResult("Slurm", "optional", "without sbatch", "apt"),
    )
    assert checkup.healthy([ok, optional])
    assert not checkup.healthy([ok, checkup.CheckResult("Horovod", "missing", "not built", "python -m …")])


def test_the_doctor_names_the_package_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_version", lambda name: "" if name == "uvicorn" else "1.0")
    (service,) = [finding for finding in checkup._packages() if finding.what == "service"]
    assert (service.state, service.found) == ("missing", "without uvicorn")
    assert service.fix.endswith("-m pip install 'batchhvd[service]'")
    assert str(service).splitlines()[0] == "✗ service        without uvicorn"
    assert service.fix in str(service)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", shell]) == 0
    assert "_BATCHHVD_COMPLETE" in capsys.readouterr().out


def test_a_key_is_a_file_or_the_text_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("id.pub").write_text("ssh-rsa AAAA me\n")
    assert _key("id.pub") == "ssh-rsa AAAA me"
    long = f"ssh-rsa {'A/+' * 300} me@here"  # longer than the system lets a path be
    assert (_key(long), _key("ssh-rsa a"), _key("~nobody-here/x")) == (long, "ssh-rsa a", "~nobody-here/x")
    Path("binary.pub").write_bytes(b"\xff")
    for wrong in (".", "binary.pub"):
        with pytest.raises(click.BadParameter, match="cannot be read"):
            _key(wrong)


def test_a_local_file_that_cannot_be_used_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/place")

    monkeypatch.setattr(cli.main_group, "main", refused)
    assert cli.run([]) == cli.FAILED
    assert capsys.readouterr().err == "batchhvd: cannot use /place: Permission denied\n"


def test_warnings_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    import warnings

    with told():
        for _ in range(2):
            warnings.warn("not uploaded: x (a socket)", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: not uploaded: x (a socket)\n" * 2
