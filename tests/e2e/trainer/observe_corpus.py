"""Runs the scripts of tests/data/check on two ranks and compares what they do with the findings written in them.

    python tests/e2e/trainer/observe_corpus.py [NAME …]        some ten minutes for all on two cores

Seen at run time: lines that print the same on both ranks, paths that both write, progress bars, downloads into one
file, data that are the same on both ranks, weights that differ at the end, and the line at which a script fails. Each
must stand in the script as a finding, and each finding of these kinds must be seen if its line is reached. A machine
without GPUs cannot show ``gpu-not-pinned``, and ``rate-not-scaled`` is Horovod's own advice. Scripts for packages that
are not installed (Lightning, Keras 2) are named as such.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import hashlib
import json
import os
import re
import runpy
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from batchhvd.trainer.measure import ranks

CORPUS = Path(__file__).parents[2] / "data" / "check"
MARK = re.compile(r"#\s*finding:\s*([a-z0-9, -]+)$")
#: Findings that let the ranks' weights differ, or make the script fail at the latest in fit.
APART = {
    "broken-wrapper",
    "not-wrapped",
    "no-broadcast",
    "no-horovod",
    "broken-binding",
    "callbacks-not-passed",
    "no-init",
}
FAILS = {"removed-api", "broken-binding", "broken-wrapper", "elastic", "unsupported-name", "shared-path", "no-init"}
SEEN = ("prints-everywhere", "shared-path", "bars-everywhere", "every-rank-downloads", "not-sharded")


# --- one rank ---------------------------------------------------------------------------------------------------------


class Observer:
    """Notes what a script does, by its line."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.seen: dict[str, dict[str, str]] = {code: {} for code in SEEN}
        self.weights: list[str] = []
        self.failed: dict[str, Any] = {}

    def line(self) -> int:
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.script:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0

    def note(self, code: str, value: object) -> None:
        line = self.line()
        if line:
            self.seen[code][f"{line} {value}"] = str(value)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes)) and str(arguments[1] or "r")[0] in "wxa":
            self.path(os.fsdecode(arguments[0]))
        elif event == "os.rename":
            self.path(os.fsdecode(arguments[1]))

    def path(self, path: str) -> None:
        if str(Path(path).resolve()).startswith(os.getcwd()) and "-rank" not in path:
            self.note("shared-path", Path(path).resolve())


def digest(values: Any) -> str:
    import numpy as np

    return hashlib.sha256(b"".join(np.ascontiguousarray(value).tobytes() for value in values)).hexdigest()[:12]


def watch(observer: Observer) -> None:
    import keras
    import numpy as np

    plain_print = builtins.print

    def shown(*words: Any, **options: Any) -> None:
        if "file" not in options and sys._getframe(1).f_code.co_filename == observer.script:
            observer.note("prints-everywhere", "print")  # what is printed may differ, as the loss of each rank does
        plain_print(*words, **options)

    builtins.print = shown
    sys.addaudithook(observer.audit)
    keras.Model.summary = lambda model, *a, **o: observer.note("prints-everywhere", "summary")
    for name in ("fit", "evaluate", "predict"):
        setattr(keras.Model, name, method(observer, name, getattr(keras.Model, name)))
    small = np.random.default_rng(0)
    images = [small.integers(0, 255, size=(count, 28, 28)).astype("uint8") for count in (256, 64)]
    labels = [small.integers(0, 10, size=count) for count in (256, 64)]

    def load_data(path: str = "mnist.npz") -> Any:
        observer.note("every-rank-downloads", path)
        return (images[0], labels[0]), (images[1], labels[1])

    def get_file(name: str, **options: Any) -> str:
        observer.note("every-rank-downloads", name)
        return "/etc/hostname"

    keras.datasets.mnist.load_data, keras.utils.get_file = load_data, get_file
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        tf.keras.datasets.mnist.load_data, tf.keras.utils.get_file = load_data, get_file


def method(observer: Observer, name: str, plain: Any) -> Any:
    @functools.wraps(plain)
    def call(model: Any, *arguments: Any, **options: Any) -> Any:
        import numpy as np

        if options.get("verbose", "auto") not in (0, False) and "_use_cached_eval_dataset" not in options:
            observer.note("bars-everywhere", name)
        x = options.get("x", arguments[0] if arguments else None)
        if name == "fit" and (isinstance(x, np.ndarray) or type(x).__name__ == "EagerTensor"):
            observer.note("not-sharded", digest([x]))
        result = plain(model, *arguments, **options)
        if name == "fit":
            observer.weights.append(digest(model.get_weights()))
        return result

    return call


def rank(script: str, report: str) -> None:
    observer = Observer(script)
    sys.argv = [script]
    values: dict[str, Any] = {}
    watch(observer)
    try:
        values = runpy.run_path(script, run_name="__main__")
    except SystemExit:
        pass
    except BaseException as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == script]
        observer.failed = {
            "line": lines[-1] if lines else 0,
            "first": lines[0] if lines else 0,
            "why": repr(error)[:160],
        }
        traceback.print_exc()
    for value in values.values():
        with contextlib.suppress(Exception):
            if hasattr(value, "get_weights") and value.weights:
                observer.weights.append(digest(value.get_weights()))
            elif hasattr(value, "state_dict"):
                observer.weights.append(digest([one.detach().numpy() for one in value.state_dict().values()]))
    number = os.environ.get("HOROVOD_RANK", "0")
    found = {"seen": observer.seen, "weights": observer.weights, "failed": observer.failed}
    Path(f"{report}-{number}.json").write_text(json.dumps(found))
    os._exit(3 if observer.failed else 0)  # without waiting for the others in Horovod's end; they are ended


# --- all of them ------------------------------------------------------------------------------------------------------


def expected(text: str) -> dict[int, set[str]]:
    marks = ((number, MARK.search(line)) for number, line in enumerate(text.splitlines(), 1))
    return {number: {code.strip() for code in mark[1].split(",")} for number, mark in marks if mark}


def observe(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    backend = "torch" if '"KERAS_BACKEND"' in text or "import torch" in text else "tensorflow"
    with TemporaryDirectory() as folder:
        command = [*ranks.python(__file__), "--rank", str(path), f"{folder}/report"]
        variables = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
        shell = ["sh", "-c", f'mkdir -p {folder}/work && cd {folder}/work && exec "$@"', "sh", *command]
        outcomes = ranks.run(shell, 2, variables={**variables, "PYTHONPATH": str(CORPUS.parents[2])}, timeout=120)
        reports = [Path(f"{folder}/report-{number}.json") for number in range(2)]
        found = [json.loads(report.read_text()) for report in reports if report.exists()]
        if not found or (len(found) == 1 and not found[0]["failed"]):
            return [{"lost": outcomes[0].output[-1500:]}]
        return [found[0], found[-1]]  # a rank that failed may have ended the other one


def contradictions(path: Path, found: list[dict[str, Any]]) -> list[str]:
    """Returns where a script did otherwise than is written in it."""
    if "lost" in found[0]:
        return [f"no report: {found[0]['lost']}"]
    text = path.read_text(encoding="utf-8")
    wanted = expected(text)
    # Two ranks that create one folder collide only if they come at the same moment.
    chance = {number for number, line in enumerate(text.splitlines(), 1) if "mkdir" in line or "makedirs" in line}
    codes = set().union(*wanted.values()) if wanted else set()
    failed, wrong = found[0]["failed"] or found[1]["failed"], []
    if failed and not codes & FAILS:
        wrong.append(f"fails, and no finding says so: {failed}")
    reached = min(failed["first"], failed["line"]) if failed else 10**6
    for code in SEEN:
        if code in ("shared-path", "not-sharded") and "import torch" in text:
            continue  # PyTorch writes, and feeds its loop, without anything that could be watched here
        if found[0] is found[1] or "compat.v1" in text:
            continue  # one rank was ended before it could report, or a session of TensorFlow 1 writes without Python
        both = set(found[0]["seen"][code]) & set(found[1]["seen"][code])
        lines = {int(one.split(" ", 1)[0]) for one in both}
        written = {line for line, inner in wanted.items() if code in inner} - chance
        if code in ("prints-everywhere", "shared-path", "bars-everywhere", "every-rank-downloads"):
            wrong += [f"line {line}: {code} is not written there" for line in sorted(lines) if not near(line, written)]
        if code != "not-sharded" or not failed:
            wrong += [
                f"line {line}: {code} is not seen"
                for line in sorted(written)
                if line < reached and not near(line, lines)
            ]
    both_ranks = zip(found[0]["weights"], found[1]["weights"], strict=False)  # a rank that leaves early shows fewer
    apart = any(one != other for one, other in both_ranks)
    alone = codes & APART and "not-sharded" not in codes  # ranks alone with the same data may end the same
    if not failed and found[0]["weights"] and ((apart and not codes & APART) or (alone and not apart)):
        wrong.append(f"weights of the ranks {'differ' if apart else 'are equal'}, and the findings say otherwise")
    return wrong


def near(line: int, lines: set[int]) -> bool:
    """Returns whether a line is among these; a call over several lines may be noted at any of them."""
    return any(abs(line - other) <= 12 for other in lines)


def main(names: list[str]) -> int:
    wrong = 0
    for path in sorted(CORPUS.glob("*.py")):
        if names and path.stem not in names:
            continue
        text = path.read_text(encoding="utf-8")
        if "lightning" in text or "TF_USE_LEGACY_KERAS" in text:
            print(f"{path.stem}: by the published change of the API; the package is not installed")
            continue
        found = observe(path)
        said = contradictions(path, found)
        wrong += len(said)
        why = found[0].get("failed") or {}
        end = f" (ends at line {why['line']}: {why['why']})" if why else ""
        print(f"{path.stem}: {'; '.join(said) or 'as written'}{end}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(*sys.argv[2:])
    raise SystemExit(main(sys.argv[1:]))
