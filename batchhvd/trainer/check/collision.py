"""Rules about ranks that interfere with each other: files that all write or download, and lines that all print."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from batchhvd.trainer.check.parsed_script import Finding, Script, finding, keyword, last

_WRITERS = ("save", "save_weights", "save_model", "export", "savez", "savez_compressed", "to_csv")
_LOGGERS = ("ModelCheckpoint", "CSVLogger", "TensorBoard", "BackupAndRestore")


def writes(script: Script) -> Iterator[Finding]:
    """Ranks do not overwrite each other's files."""
    for call in script.calls:
        name = last(call.func)
        if script.guarded(call) or any(script.by_rank(argument) for argument in _arguments(call)):
            continue
        if (name in _WRITERS and call.args and isinstance(call.func, ast.Attribute)) or name in _LOGGERS:
            yield finding(
                "shared-path",
                call,
                "every rank writes to the same path at the same time",
                "put it under: if hvd.rank() == 0",
            )
        elif name in ("makedirs", "mkdir") and not _allows_existing(call):
            yield finding(
                "shared-path",
                call,
                "every rank creates the same folder: the second one fails",
                "put it under: if hvd.rank() == 0, or pass exist_ok=True",
            )


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(part.value for part in call.keywords)]


def _allows_existing(call: ast.Call) -> bool:
    value = keyword(call, "exist_ok")
    return isinstance(value, ast.Constant) and value.value is True


def downloads(script: Script) -> Iterator[Finding]:
    """One rank of a node downloads, and the others wait for it."""
    for call in script.calls:
        name = script.dotted(call.func)
        fetches = ".datasets." in name and name.endswith("load_data") or last(call.func) in ("get_file", "urlretrieve")
        if fetches and not script.guarded(call) and not _locked(script, call):
            yield finding(
                "every-rank-downloads",
                call,
                "every rank downloads the data into the same file at the same time",
                'use batchhvd.trainer.data.load("cifar10"), which downloads once for each node under a lock, or let '
                "local rank 0 download before hvd.barrier()",
            )


def _locked(script: Script, node: ast.AST) -> bool:
    while node in script.parents:
        node = script.parents[node]
        if isinstance(node, ast.With) and any("lock" in ast.dump(item).lower() for item in node.items):
            return True
    return False


def prints(script: Script) -> Iterator[Finding]:
    """Only one rank prints."""
    for call in script.calls:
        name = last(call.func)
        if script.guarded(call):
            continue
        elsewhere = keyword(call, "file") is not None or any(script.by_rank(argument) for argument in _arguments(call))
        if name == "print" and not elsewhere:
            yield finding("prints-everywhere", call, "every rank prints the same", "put it under: if hvd.rank() == 0")
        elif _shows_bars(script, call):
            yield finding(
                "bars-everywhere",
                call,
                "every rank shows a progress bar in the same output",
                "pass verbose=1 if hvd.rank() == 0 else 0",
            )


def _shows_bars(script: Script, call: ast.Call) -> bool:
    verbose = keyword(call, "verbose")
    shows = verbose is None or (isinstance(verbose, ast.Constant) and verbose.value != 0)
    evaluates = isinstance(call.func, ast.Attribute) and call.func.attr in ("evaluate", "predict")
    return shows and (script.trains(call) and last(call.func) != "train_on_batch" or evaluates)
