"""The check of scripts: the tutorial's printed script has exactly its defects, right scripts have none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchhvd.errors import SpecError
from batchhvd.trainer import check
from batchhvd.trainer.check.__main__ import main
from batchhvd.trainer.check.codes import CODES
from batchhvd.trainer.check.fix import fixed

SCRIPTS = Path(__file__).parents[2] / "data" / "scripts"

RIGHT = """
import os
import numpy as np
import batchhvd.trainer.hvd as hvd

hvd.init()
os.environ["CUDA_VISIBLE_DEVICES"] = str(hvd.local_rank())

import keras

first = hvd.rank() == 0


def say(*words):
    print(*words)


class Save(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.save("model.keras")


if hvd.local_rank() == 0:
    keras.datasets.cifar10.load_data()
hvd.barrier()
with open("lock") as data_lock:
    (x, y), _ = keras.datasets.cifar10.load_data()
x, y = x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]
model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10)])
optimizer = keras.optimizers.SGD(learning_rate=0.01 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer)
model.compile(optimizer, "mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
if first:
    callbacks.append(Save())
    callbacks.append(keras.callbacks.ModelCheckpoint("{epoch}.keras"))
    os.makedirs("models")
model.fit(x, y, callbacks=callbacks, epochs=10 // hvd.size(), verbose=1 if first else 0)
print("rank", hvd.rank(), "is ready")
if first:
    say("done")
if hvd.rank() != 0:
    raise SystemExit
model.save("last.keras")
print(model.evaluate(x, y))
"""


def kinds(text: str) -> list[tuple[str, int]]:
    return [(finding.code, finding.lines[0]) for finding in check.check(text)]


def without(part: str, instead: str = "") -> list[str]:
    assert part in RIGHT
    return [kind for kind, _ in kinds(RIGHT.replace(part, instead))]


def test_a_right_script_has_no_finding() -> None:
    assert kinds(RIGHT) == []


def test_our_own_scripts_have_no_finding() -> None:
    for name in ("cifar_cnn_distributed.py", "train.py"):
        assert kinds((Path(check.__file__).parents[1] / name).read_text(encoding="utf-8")) == []


def test_the_printed_script_has_exactly_its_defects() -> None:
    found = check.check((SCRIPTS / "tutorial_2018.py.txt").read_text(encoding="utf-8"))
    assert [(finding.code, finding.lines) for finding in found] == [
        ("removed-api", (4,)),  # keras.preprocessing
        ("removed-api", (19,)),  # ConfigProto
        ("removed-api", (22,)),  # set_session
        ("removed-api", (22,)),  # Session
        ("not-sharded", (27, 100, 135)),
        ("every-rank-downloads", (39,)),
        ("prints-everywhere", (40, 41, 42, 99, 106, 146, 150, 151)),
        ("removed-api", (72,)),  # rmsprop
        ("removed-api", (72,)),  # lr
        ("removed-api", (72,)),  # decay
        ("broken-wrapper", (75,)),
        ("callbacks-not-passed", (82, 100, 135)),
        ("bars-everywhere", (100, 135, 149)),
        ("removed-api", (135,)),  # fit_generator
        ("shared-path", (143,)),
        ("shared-path", (145,)),
    ]
    assert all(finding.remedy for finding in found)


@pytest.mark.parametrize("name", ["rank_report", "rank0_saves_only", "weights_equal_after_training"])
def test_other_peoples_right_scripts_are_only_asked_for_a_gpu(name: str) -> None:
    path = SCRIPTS / f"{name}.py"
    assert {kind for kind, _ in kinds(path.read_text(encoding="utf-8"))} <= {"gpu-not-pinned"}


def test_each_missing_piece_is_found() -> None:
    assert without("hvd.init()\n") == ["no-init"]
    assert without('os.environ["CUDA_VISIBLE_DEVICES"] = str(hvd.local_rank())\n') == ["gpu-not-pinned"]
    assert without(" * hvd.size(), momentum", ", momentum") == ["rate-not-scaled"]
    assert without("optimizer = hvd.DistributedOptimizer(optimizer)\n") == ["not-wrapped"]
    assert without("hvd.callbacks.BroadcastGlobalVariablesCallback(0), ") == ["no-broadcast"]
    assert without("callbacks=callbacks, ") == ["callbacks-not-passed"]
    assert without("x, y = x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]\n") == ["not-sharded"]
    assert without("verbose=1 if first else 0", "verbose=2") == ["bars-everywhere"]
    assert without('if first:\n    say("done")', 'say("done")') == ["prints-everywhere"]
    assert without("if hvd.rank() != 0:\n    raise SystemExit\n") == [
        "shared-path",
        "bars-everywhere",
    ]
    assert without("if hvd.local_rank() == 0:\n    keras", "if True:\n    keras") == ["every-rank-downloads"]


def test_what_only_rank_0_makes_is_not_shared() -> None:
    everywhere = without("if first:\n    callbacks.append(Save())", "if model:\n    callbacks.append(Save())")
    assert everywhere == ["shared-path", "shared-path"]  # the method of Save and the checkpoint, and the folder


def test_both_of_horovods_wrappers_are_known_as_broken() -> None:
    for module in ("horovod.keras", "horovod.tensorflow.keras"):
        assert without("import batchhvd.trainer.hvd as hvd", f"import {module} as hvd") == ["broken-wrapper"]


def test_a_script_without_horovod_is_told_so() -> None:
    assert kinds("import keras\n") == [("no-horovod", 1)]


def test_old_names_are_found() -> None:
    lines = [
        "model.predict_classes(x)",
        "from keras.layers.advanced_activations import ReLU",
        "import horovod.torch as hvd",
        "hvd.init()",
    ]
    assert kinds("\n".join(lines)) == [("removed-api", 1), ("removed-api", 2)]


def test_the_command_says_where_and_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "mein skript ä.py"
    script.write_text(RIGHT.replace("hvd.init()\n", ""), encoding="utf-8")
    assert main([str(script)]) == 1
    assert f"{script}:1:1: no-init: " in capsys.readouterr().out
    assert main([str(script), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["code"] == "no-init"
    script.write_text(RIGHT, encoding="utf-8")
    assert main([str(script)]) == 0


def test_what_is_not_python_is_refused_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecError) as refused:
        check.check("import keras\nprint 'x'\n", "old.py")
    assert (refused.value.line, refused.value.file) == (2, "old.py")
    assert main([str(tmp_path / "nowhere.py")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_the_page_lists_the_codes_as_they_are() -> None:
    page = (Path(check.__file__).parents[3] / "docs/check.md").read_text(encoding="utf-8")
    rows = [f"| `{code}` | {kind.meaning} | {kind.fixed or '–'} |" for code, kind in CODES.items()]
    assert "\n".join(rows) in page and page.count("\n| `") == len(rows) + 4
    assert list(CODES) == sorted(CODES)


@pytest.mark.parametrize(
    "text",
    [
        "import keras\nx = x.y\nprint(x.z)\n",
        "import keras\na = b.c\nb = a.d\nprint(a.e(b))\n",
        "import keras\nx = x(x)\nx.compile(x)\nx.fit(x)\n",
        "import keras\n\n\ndef f(x=None):\n    print(x)\n    return f(f)\n\n\nf(f(1))\n",
        "import keras\n\n\nclass A(A):\n    def save(self):\n        self.save()\n\n\nA().save()\n",
    ],
)
def test_names_that_are_made_of_themselves_end(text: str) -> None:
    assert "no-horovod" in [code for code, _ in kinds(text)]
    assert fixed(text)


def test_a_long_script_takes_no_longer_than_its_length() -> None:
    lines = [f"x{number} = x{number - 1}.f(x{number - 1}, x{number - 2})" for number in range(2, 400)]
    assert ("no-horovod", 1) in kinds("import keras\n" + "\n".join([*lines, "print(x399)"]) + "\n")
