"""A function and its arguments as bytes that another Python can call, and how its answer is read."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType

from attrs import frozen

from batchhvd.errors import RemoteError, SpecError
from batchhvd.functions import __main__ as runner

_INSTALLED = ("site-packages", "dist-packages")


@frozen
class PackedFunction:
    """A function and its arguments, ready to be sent.

    Attributes:
        name: the function's name.
        files: content by file name, for the folder of the call.
        digest: what they are, as a short text.
    """

    name: str
    files: Mapping[str, bytes]
    digest: str


def name_of(function: Callable[..., object]) -> str:
    """Returns the name of a function, of what a ``functools.partial`` calls, or of an object's class."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def check_call(
    function: Callable[..., object],
    args: Sequence[object],
    options: Mapping[str, object],
    options_of_jobs: Sequence[str],
    taken: Sequence[str],
) -> None:
    """Checks that a function can be called so.

    Args:
        function: the function.
        args: its arguments.
        options: its arguments by name.
        options_of_jobs: names that are not passed on.
        taken: those of them that were given.

    Raises:
        SpecError: an argument is missing or too much, or one was given that could be the job's or the function's.
    """
    if not callable(function):
        raise SpecError(f"{function!r} is not a function", remedy="give the function itself, not what it returns")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some that are written in C do not say
        return
    remedy = f"it takes {signature}"
    if own := [name for name in options_of_jobs if name in signature.parameters]:
        remedy = f"{own[0]} is one of the job's own here: give it as functools.partial({name_of(function)}, {own[0]}=…)"
    try:
        by_place = signature.bind_partial(*args).arguments
        signature.bind(*args, **options)
    except TypeError as error:
        raise SpecError(f"{name_of(function)} cannot be called so: {error}", remedy=remedy) from None
    given = getattr(function, "keywords", None) or {}
    if twice := [name for name in own if name in taken and name not in by_place and name not in given]:
        raise SpecError(f"{name_of(function)} has an argument {twice[0]!r} too", remedy=remedy)


def pack(
    function: Callable[..., object], args: Sequence[object], options: Mapping[str, object], code: Path | None
) -> PackedFunction:
    """Returns a function and its arguments as bytes.

    Modules of the program itself, which no package on the node has, travel inside, except those below ``code``.

    Args:
        function: the function.
        args: its arguments.
        options: its arguments by name.
        code: the folder that is uploaded with it, or None.

    Raises:
        SpecError: something in it cannot be pickled.
    """
    import cloudpickle

    name = name_of(function)
    try:
        with _by_value(code):
            pickled = bytes(cloudpickle.dumps((function, tuple(args), dict(options))))
    except Exception as error:  # anything that an object's own methods raise
        raise SpecError(
            f"{name} or something that it uses cannot be sent to the nodes: {error}",
            remedy="make such an object inside the function, or load it from a share there",
        ) from error
    facts = json.dumps({"name": name, "versions": runner.versions_of(pickled)}).encode()
    digest = hashlib.sha256(pickled + facts).hexdigest()[:16]
    return PackedFunction(name, {runner.FUNCTION: pickled, runner.FACTS: facts}, digest)


def program() -> dict[str, Path]:
    """Returns what runs a packed function on a node, by file name."""
    import cloudpickle

    library = Path(cloudpickle.__file__).parent
    files = {f"cloudpickle/{path.name}": path for path in sorted(library.glob("*.py"))}
    return {"run_function.py": Path(runner.__file__), **files}


def digest_of(files: Mapping[str, Path]) -> str:
    """Returns what some files contain, as a short text."""
    found = hashlib.sha256()
    for name, path in files.items():
        found.update(name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


@contextmanager
def _by_value(code: Path | None) -> Iterator[None]:
    """Lets cloudpickle send the content of the program's own modules, not only their names."""
    import cloudpickle

    before = cloudpickle.list_registry_pickle_by_value()
    found = [module for module in _own_modules(code) if module.__name__ not in before]
    for module in found:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in found:
            cloudpickle.unregister_pickle_by_value(module)


def _own_modules(code: Path | None) -> list[ModuleType]:
    """Returns the modules that are files of the program: neither Python's, nor installed, nor below ``code``."""
    python = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    uploaded = f"{code.resolve()}/" if code else None
    found = []
    for name, module in list(sys.modules.items()):
        path = str(getattr(module, "__file__", None) or "")
        if not path or name == "__main__" or getattr(module, "__name__", "") != name or path.startswith(python):
            continue
        if any(f"/{part}/" in path for part in _INSTALLED) or (uploaded and path.startswith(uploaded)):
            continue
        found.append(module)
    known = metadata.packages_distributions() if found else {}  # an editable installation lies anywhere
    return [module for module in found if module.__name__.partition(".")[0] not in known]


def read(about: Mapping[str, object], kept: Callable[[], bytes], rank: int, name: str) -> object:
    """Returns what a rank's function returned, or raises what it raised.

    This unpickles what the job wrote: whoever can write to its output directory decides what runs here.

    Args:
        about: the rank's description, ``rank-N.json``.
        kept: reads the rank's pickle.
        rank: its number.
        name: the job's name, for messages.

    Raises:
        RemoteError: the function was refused, or its value or exception cannot be read here.
        Exception: what the function raised; its cause is a ``RemoteError`` with the remote traceback.
    """
    state, text = about.get("state"), str(about.get("traceback") or "")
    if state == runner.REFUSED:
        sentence = str(about.get("sentence"))
        raise RemoteError(f"{sentence}. Install the same minor version on both sides", rank=rank)
    differs = runner.difference(_texts(about.get("versions")), "this program", "the node")
    if state == runner.RETURNED:
        if differs:
            raise RemoteError(f"what rank {rank} of job {name!r} returned cannot be read here: {differs}", rank=rank)
        return _loaded(kept(), f"what rank {rank} of job {name!r} returned", rank)
    remote = RemoteError(f"rank {rank} of job {name!r} raised:\n\n{text.rstrip()}", rank=rank, traceback=text)
    error = None if differs else _exception(kept())
    if error is None:
        raise remote
    raise error from remote


def _texts(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


def _loaded(kept: bytes, what: str, rank: int) -> object:
    import cloudpickle

    try:
        value: object = cloudpickle.loads(kept)
    except Exception as error:  # a class that is not here, or anything that its own methods raise
        raise RemoteError(f"{what} cannot be read here: {type(error).__name__}: {error}", rank=rank) from error
    return value


def _exception(kept: bytes) -> BaseException | None:
    """Returns an exception, or None if it cannot be read here."""
    if not kept:
        return None
    try:
        found = _loaded(kept, "", 0)
    except RemoteError:
        return None
    return found if isinstance(found, BaseException) else None
