"""What each rank of a function's job runs: it calls the function, and writes down what that returned or raised.

The file travels to the nodes by itself, with cloudpickle beside it; it needs the standard library only.

    python __main__.py FOLDER [CODE]

FOLDER holds ``function.pickle`` (function, arguments) and ``function.json`` (its name, and the versions that it needs),
CODE the modules of the function's program. In a sweep, the trial's point has more of its arguments. Each rank writes
``rank-N.pickle``, then ``rank-N.json``.
"""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

FUNCTION, FACTS = "function.pickle", "function.json"
OUTPUT = "VALUES"
"""The id of the output directory that receives the values."""

POINT = "BATCHHVD_POINT"  # as in sweeps/template.py

RETURNED, RAISED, REFUSED = "returned", "raised", "refused"
_FAILED = 1  # the exit code of a rank whose function raised
_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_GETS = ("BINGET", "LONG_BINGET")


def modules_of(pickled: bytes) -> set[str]:
    """Returns the modules that a pickle needs where it is read, without reading it."""
    return {name for name in _modules_of(pickled) if name}


def _modules_of(pickled: bytes) -> Iterator[str]:
    memo: list[str] = []  # what is kept for later, "" for anything but a text
    texts = ["", ""]
    importing, last = False, ""
    for code, value, _ in pickletools.genops(pickled):
        if code.name in _TEXTS or code.name in _GETS:
            text = str(value) if code.name in _TEXTS else memo[int(str(value))]
            texts = [texts[-1], text] if text else texts
            if importing:
                yield text  # cloudpickle's own way to say which module a name stands for
        elif code.name == "STACK_GLOBAL":
            yield texts[0]
        if code.name == "MEMOIZE":
            memo.append(texts[-1] if last in _TEXTS else "")
            continue
        importing = code.name == "STACK_GLOBAL" and texts[1] == "subimport"
        last = code.name


def versions_of(pickled: bytes) -> dict[str, str]:
    """Returns the installed packages that a pickle needs, with their versions; ``python`` is one of them."""
    tops = {name.partition(".")[0] for name in modules_of(pickled)} - sys.stdlib_module_names - {"cloudpickle"}
    known = metadata.packages_distributions() if tops else {}
    names = {known[top][0] for top in tops if len(set(known.get(top, ()))) == 1}
    found = {"python": "{}.{}.{}".format(*sys.version_info[:3])}
    return {**found, **{name: metadata.version(name) for name in sorted(names)}}


def difference(needed: Mapping[str, str], here: str, there: str) -> str:
    """Says which of the needed versions is not the one of this place, or "" if none differs by more than a patch.

    Args:
        needed: versions by package, as ``versions_of`` gives them.
        here: what this place is called, such as "the node".
        there: what the other place is called.
    """
    for name, version in needed.items():
        own = _own(name)
        if not own:
            return f"{there} has {name} {version}, {here} has no {name}"
        if _minor(own) != _minor(version):
            return f"{there} has {name.capitalize() if name == 'python' else name} {version}, {here} has {own}"
    return ""


def _own(name: str) -> str:
    if name == "python":
        return "{}.{}.{}".format(*sys.version_info[:3])
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def main(folder: Path, results: Path, rank: int) -> int:
    """Calls the function and returns the exit code."""
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    if differs := difference(facts["versions"], "the node", "the program that sent it"):
        sentence = f"{facts['name']} was not started: {differs}"
        print(sentence, file=sys.stderr, flush=True)
        _write(results, rank, {"state": REFUSED, "sentence": sentence}, b"")
        return _FAILED
    try:
        function, args, options = pickle.loads((folder / FUNCTION).read_bytes())
        value = function(*args, **options, **json.loads(os.environ.get(POINT, "{}")))
        kept = _pickled(value, f"what {facts['name']} returned, a {type(value).__name__},")
    except BaseException as error:  # whatever it is, the caller gets it
        return _raised(results, rank, error)
    _write(results, rank, {"state": RETURNED, "versions": versions_of(kept)}, kept)
    return 0


def _pickled(value: object, what: str) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise TypeError(f"{what} cannot be pickled: {error}") from error


def _raised(results: Path, rank: int, error: BaseException) -> int:
    """Writes an exception down, and its traceback as text; the exception itself may not be picklable."""
    frames = error.__traceback__ and error.__traceback__.tb_next  # without this file's own
    text = "".join(traceback.format_exception(type(error), error, frames))
    print(text, end="", file=sys.stderr, flush=True)
    try:
        kept = _pickled(error, "the exception")
        pickle.loads(kept)  # some can be written and not be read
    except Exception:
        kept = b""
    about = {"state": RAISED, "type": type(error).__name__, "message": str(error), "traceback": text}
    _write(results, rank, {**about, "versions": versions_of(kept) if kept else {}}, kept)
    code = error.code if isinstance(error, SystemExit) else _FAILED
    return code if isinstance(code, int) else 0 if code is None else _FAILED


def _write(results: Path, rank: int, about: Mapping[str, object], kept: bytes) -> None:
    """Writes what a rank has to say; the description comes last, so that whoever sees it finds the value."""
    for name, content in ((f"rank-{rank}.pickle", kept), (f"rank-{rank}.json", json.dumps(about).encode())):
        scratch = results / f".{name}"
        scratch.write_bytes(content)
        scratch.replace(results / name)


if __name__ == "__main__":
    sys.path[1:1] = sys.argv[2:3]
    place = Path(os.environ[f"AZ_BATCHAI_OUTPUT_{OUTPUT}"])
    sys.exit(main(Path(sys.argv[1]), place, int(os.environ.get("HOROVOD_RANK", "0"))))
