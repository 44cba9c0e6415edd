"""Rules about ranks that interfere with each other: files that all write or download, and lines that all print."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from batchhvd.trainer.check.finding import Finding, finding
from batchhvd.trainer.check.meaning import Meaning
from batchhvd.trainer.check.parsed_script import OURS, arguments, keyword, last

_METHODS = ("save", "save_weights", "export", "to_csv", "savefig", "to_json", "to_parquet")
_FUNCTIONS = ("save_model", "savez", "savez_compressed", "imsave")
_METHODS_OF_PATHS = ("write_text", "write_bytes")
#: The arguments in which calls take a path.
_PATHS = (
    "filepath",
    "path",
    "f",
    "file",
    "fname",
    "filename",
    "log_dir",
    "backup_dir",
    "checkpoint_dir",
    "path_or_buf",
)
_LOGGERS = ("ModelCheckpoint", "CSVLogger", "TensorBoard", "BackupAndRestore")


def writes(meaning: Meaning) -> Iterator[Finding]:
    """Ranks do not overwrite each other's files."""
    for call in meaning.script.calls:
        written = _writes(meaning, call)
        if not (written or _makes(meaning, call)) or _is_own(meaning, call):
            continue
        if written:
            effect = "writes to the same path at the same time"
            if _safe(meaning, call):
                effect = "writes to the same path: it takes all ranks' time, and the last one's file stays"
            yield finding("shared-path", call, f"every rank {effect}", "put it under `if {hvd}.rank() == 0: ...`")
        else:
            yield finding(
                "shared-path",
                call,
                "every rank creates the same folder: the second one fails",
                "put it under `if {hvd}.rank() == 0: ...`, or pass `exist_ok=True`",
            )


def _is_own(meaning: Meaning, call: ast.Call) -> bool:
    """Returns whether only some ranks reach a call, or each has a path of its own."""
    return meaning.script.guarded(call) or meaning.script.by_rank(_path(meaning, call))


def _writes(meaning: Meaning, call: ast.Call) -> bool:
    name, script = last(call.func), meaning.script
    dotted = meaning.name(call.func)
    if dotted.startswith(OURS) or any(one.startswith(OURS) for one in meaning.made(_receiver(call))):
        return False
    if name in _LOGGERS:
        ours = meaning.uses_ours("fit") and not meaning.fits
        return not ours and not dotted.startswith(("lightning", "pytorch_lightning"))
    if name == "MonitoredTrainingSession":
        folder = keyword(call, "checkpoint_dir")
        return folder is not None and not (isinstance(folder, ast.Constant) and folder.value is None)
    if name == "open" and isinstance(call.func, ast.Name) or dotted == "tensorflow.io.gfile.GFile":
        mode = keyword(call, "mode") or (call.args[1] if len(call.args) > 1 else None)
        return isinstance(mode, ast.Constant) and str(mode.value)[:1] in ("w", "x", "a")
    if name in _METHODS_OF_PATHS and isinstance(call.func, ast.Attribute):
        return True
    given = _path(meaning, call) is not None
    method = isinstance(call.func, ast.Attribute) and name in (*_METHODS, *_FUNCTIONS)
    collects = name == "save" and ".elastic." in f"{' '.join(meaning.made(_receiver(call)))}."
    return given and (method or (name in _FUNCTIONS and bool(script.dotted(call.func)))) and not collects


def _path(meaning: Meaning, call: ast.Call) -> ast.expr | None:
    """Returns the argument that says where a call writes, or the path whose method it is."""
    named = keyword(call, *_PATHS)
    if named is not None:
        return named
    module = meaning.script.dotted(_receiver(call) or call)
    if last(call.func) in (*_METHODS_OF_PATHS, "mkdir") and not module:
        return _receiver(call)
    second = last(call.func) == "save_model" or (module == "torch" and last(call.func) == "save")
    return next(iter(call.args[1:] if second else call.args), None)


def _safe(meaning: Meaning, call: ast.Call) -> bool:
    """Returns whether the trainer's binding keeps the file whole, as it does for models of Keras."""
    models = meaning.model(_receiver(call)) or last(call.func) == "ModelCheckpoint"
    return models and "batchhvd.trainer.hvd" in meaning.horovod


def _receiver(call: ast.Call) -> ast.expr | None:
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _makes(meaning: Meaning, call: ast.Call) -> bool:
    name, value = last(call.func), keyword(call, "exist_ok")
    if name not in ("makedirs", "mkdir") or meaning.name(call.func).startswith("tensorflow."):
        return False
    if name == "makedirs" and len(call.args) > 2:
        value = call.args[2]
    return not (isinstance(value, ast.Constant) and value.value is True)


def downloads(meaning: Meaning) -> Iterator[Finding]:
    """One rank of a node downloads, and the others wait for it."""
    fetched: set[str] = set()
    for call in meaning.script.calls:
        what = _downloads(meaning, call)
        if not what:
            continue
        if meaning.script.guarded(call) or _locked(meaning, call):
            fetched.add(what)
        elif what not in fetched and not any(map(meaning.script.by_rank, arguments(call))):
            yield finding(
                "every-rank-downloads",
                call,
                "every rank downloads the data into the same file at the same time",
                "let one rank of each node download first: `if {hvd}.local_rank() == 0: "
                f"{ast.unparse(call)}`, then `{{hvd}}.barrier()`",
            )


def _downloads(meaning: Meaning, call: ast.Call) -> str:
    name, flag = meaning.name(call.func), keyword(call, "download")
    if name.startswith("keras.datasets.") and name.endswith(".load_data"):
        return name
    if name in ("keras.utils.get_file", "urllib.request.urlretrieve"):
        return ast.unparse(call)
    torch = name.startswith("torchvision.datasets.") and isinstance(flag, ast.Constant) and flag.value is True
    return name if torch else ""


def _locked(meaning: Meaning, node: ast.AST) -> bool:
    while node in meaning.script.parents:
        node = meaning.script.parents[node]
        if isinstance(node, ast.With) and any("lock" in ast.dump(item).lower() for item in node.items):
            return True
    return False


def prints(meaning: Meaning) -> Iterator[Finding]:
    """Only one rank prints."""
    for call in meaning.script.calls:
        if _prints(meaning, call) and not meaning.script.guarded(call):
            yield finding(
                "prints-everywhere", call, "every rank prints the same", "put it under `if {hvd}.rank() == 0: ...`"
            )
        elif _shows_bars(meaning, call) and not meaning.script.guarded(call):
            yield finding(
                "bars-everywhere",
                call,
                "every rank shows a progress bar in the same output",
                "pass `verbose=1 if {hvd}.rank() == 0 else 0`",
            )


def _prints(meaning: Meaning, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name) and call.func.id == "print":
        return keyword(call, "file") is None and not any(map(meaning.script.by_rank, arguments(call)))
    return last(call.func) == "summary" and not arguments(call) and meaning.model(_receiver(call))


def _shows_bars(meaning: Meaning, call: ast.Call) -> bool:
    verbose = keyword(call, "verbose")
    shows = verbose is None or (isinstance(verbose, ast.Constant) and verbose.value != 0)
    if not shows or last(call.func) == "train_on_batch":
        return False
    tests = last(call.func) in ("evaluate", "predict") and meaning.keras
    return meaning.trains(call) or (tests and (meaning.model(_receiver(call)) or _named(call)))


def _named(call: ast.Call) -> bool:
    return any(word in last(_receiver(call) or call).lower() for word in ("model", "net"))
