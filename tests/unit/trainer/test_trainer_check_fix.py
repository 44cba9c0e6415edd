"""The fixes of the check: what they write, what they leave, and that layout, comments and bytes stay."""

from __future__ import annotations

import ast
import functools
import io
import json
import os
import tokenize
from pathlib import Path

import pytest

from batchhvd.trainer.check import check
from batchhvd.trainer.check.__main__ import main
from batchhvd.trainer.check.codes import CODES
from batchhvd.trainer.check.fix import fixed

CORPUS = Path(__file__).parents[2] / "data" / "check"
SCRIPTS = sorted(CORPUS.glob("*.py"))
TEXTS = [path.read_text(encoding="utf-8") for path in SCRIPTS]
#: Scripts of which nothing is left but what a person decides: the rate.
WHOLE = ("tf2_keras_mnist", "keras_mnist", "plain_keras", "plain_functions", "torch_half_done", "everything_written")


def text_of(name: str) -> str:
    return (CORPUS / f"{name}.py").read_text(encoding="utf-8")


@functools.cache
def codes(text: str) -> frozenset[str]:
    return frozenset(finding.code for finding in check(text))


@functools.cache
def after_fixes(text: str) -> str:
    return fixed(text)


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_fix_keeps_comments_is_python_and_leaves_nothing_new(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    after = after_fixes(text)
    assert comments(after) == comments(text)
    ast.parse(after)
    assert fixed(after) == after
    assert codes(after) <= codes(text)
    if not codes(text):
        assert after == text


@pytest.mark.parametrize("code", [code for code, kind in CODES.items() if kind.fixed])
def test_each_code_that_is_said_to_be_fixed_is(code: str) -> None:
    assert any(code not in codes(after_fixes(text)) for text in TEXTS if code in codes(text))


@pytest.mark.parametrize("code", [code for code, kind in CODES.items() if not kind.fixed])
def test_no_other_code_is_fixed(code: str) -> None:
    for text in TEXTS:
        if codes(text) == {code}:
            assert after_fixes(text) == text


def test_whole_scripts_have_nothing_left_but_the_rate_and_sessions() -> None:
    for name in WHOLE:
        left = codes(after_fixes(text_of(name)))
        assert left <= {"rate-not-scaled"} | ({"removed-api"} if name == "keras_mnist" else set()), name


def test_a_string_over_several_lines_is_not_indented() -> None:
    head = "import horovod.torch as hvd\n\nhvd.init()\n"
    text = f"{head}print(\n    'first',  # one\n    '''second\nthird''',\n)\nprint('x'); y = 1\n"
    assert fixed(text) == (
        "import horovod.torch as hvd\n\nhvd.init()\nif hvd.rank() == 0:\n    print(\n        'first',  # one\n"
        "        '''second\nthird''',\n    )\nprint('x'); y = 1\n"
    )


def test_what_communicates_is_never_put_under_a_rank() -> None:
    for line in ("print(hvd.allreduce(1.0))", "print(report())", "print(model.fit(x, epochs=1, callbacks=c))"):
        head = "import keras\nimport batchhvd.trainer.hvd as hvd\n\n\ndef report():\n    return hvd.barrier()\n\n\n"
        text = f"{head}hvd.init()\n{line}\n"
        assert "if hvd.rank() == 0:" not in fixed(text)


def test_a_name_that_is_taken_is_not_taken_again() -> None:
    text = "from keras import backend\nimport keras\nmodel = keras.Sequential()\n"
    text += "model.compile('sgd', 'mse')\nmodel.fit(x)\n"
    assert "backend as trainer_backend, hvd" in fixed(text)
    assert fixed(text.replace("model = ", "hvd = model = ")).count("hvd.init()") == 0


def test_the_command_shows_then_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "skript ä.py"
    text = f"# -*- coding: latin-1 -*-\n# größer\n{text_of('no_broadcast')}".replace("\n", "\r\n")
    script.write_bytes(text.encode("latin-1"))
    script.chmod(0o640)
    link = tmp_path / "link.py"
    link.symlink_to(script)
    assert main([str(link), "--diff"]) == 1
    assert "+backend.prepare()" in capsys.readouterr().out
    assert script.read_bytes() == text.encode("latin-1")
    assert main([str(link), "--fix"]) == 0
    shown = capsys.readouterr().out
    assert "+backend.prepare()" in shown and shown.endswith("nothing is left\n")
    after = script.read_bytes().decode("latin-1")
    assert "größer\r\n" in after and "\n" not in after.replace("\r\n", "")
    assert link.is_symlink() and os.stat(script).st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link.py", "skript ä.py"]
    assert main([str(link), "--diff"]) == 0


def test_the_forms_for_programs_stay_clean_while_fixing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(text_of("torch_half_done"), encoding="utf-8")
    assert main([str(script), "--fix", "--json"]) == 1
    captured = capsys.readouterr()
    assert [finding["code"] for finding in json.loads(captured.out)] == ["rate-not-scaled"]
    assert captured.err.startswith(f"--- {script}")


def test_sarif_has_what_its_schema_requires(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "a script.py"
    script.write_text("x = 'ä'; import keras; print(x, 'é', 1)\n", encoding="utf-8")
    assert main([str(script), "--sarif"]) == 1
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0" and len(log["runs"]) == 1
    run = log["runs"][0]
    driver = run["tool"]["driver"]
    assert driver["name"] and [rule["id"] for rule in driver["rules"]] == list(CODES)
    assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
    assert run["columnKind"] == "unicodeCodePoints" and len(run["results"]) == 2
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] == "warning" and result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == script.as_uri() and " " not in script.as_uri()
    region = run["results"][1]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 1, "startColumn": 24, "endLine": 1, "endColumn": 40}


def test_several_scripts_are_read_and_one_that_cannot_be_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.py"
    old.write_text("print 'x'\n")
    assert main([str(CORPUS / "gan.py"), str(old), str(CORPUS / "no_init.py")]) == 2
    captured = capsys.readouterr()
    assert "no_init.py:1:1: no-init: " in captured.out and f"{old} cannot be read" in captured.err
    assert main([str(CORPUS / "gan.py")]) == 0
