"""Rewrites what is mechanical in a script, and leaves the rest to a person.

The fixes are made in an order in which each may rely on the ones before, and again until none is left. A fix that would
leave something that is not Python is not made.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from batchhvd.trainer.check.edit import Editor, TextEdit, applied
from batchhvd.trainer.check.finding import Finding
from batchhvd.trainer.check.fix_imports import add_horovod, add_init, change_binding, pin_gpu
from batchhvd.trainer.check.fix_output import download_first, guard, quiet
from batchhvd.trainer.check.fix_training import broadcast, pass_callbacks, rename, share_data, wrap_optimizer
from batchhvd.trainer.check.meaning import Meaning
from batchhvd.trainer.check.parsed_script import Script
from batchhvd.trainer.check.rule import findings

#: How a fix is made at one place.
Fix = Callable[[Meaning, Editor, "ast.AST | None"], Iterator[TextEdit]]
_FIXES: dict[str, Fix] = {
    "no-horovod": add_horovod,
    "broken-wrapper": change_binding,
    "broken-binding": change_binding,
    "no-init": add_init,
    "gpu-not-pinned": pin_gpu,
    "not-sharded": share_data,
    "not-wrapped": wrap_optimizer,
    "callbacks-not-passed": pass_callbacks,
    "no-broadcast": broadcast,
    "every-rank-downloads": download_first,
    "bars-everywhere": quiet,
}
_WITHOUT_HOROVOD = ("no-horovod", "removed-api")
_ORDER = [*_FIXES, "removed-api", "guard"]
_GUARDED = ("shared-path", "prints-everywhere")
_ROUNDS = 4


def fixed(text: str, name: str = "<script>") -> str:
    """Returns a script with everything fixed that can be fixed without a person.

    Args:
        text: a script that is Python.
        name: its name in messages.
    """
    for _ in range(_ROUNDS):
        before = text
        for code in _ORDER:
            text = _attempt(text, name, code)
        if text == before:
            break
    return text


@lru_cache(maxsize=2)
def _read(text: str, name: str) -> tuple[Meaning, list[Finding]]:
    script = Script(text, name)
    return Meaning(script), findings(script)


def _attempt(text: str, name: str, code: str) -> str:
    meaning, found = _read(text, name)
    if code not in _WITHOUT_HOROVOD and not _has_alias(meaning):
        return text
    changed = applied(text, _edits(meaning, code, found))
    try:
        ast.parse(changed)
    except SyntaxError:
        return text
    return changed


def _has_alias(meaning: Meaning) -> bool:
    """Returns whether the name of Horovod that fixes write exists in the script."""
    head = meaning.alias.split(".")[0]
    return head in meaning.script.origins or head in meaning.script.values


def _edits(meaning: Meaning, code: str, found: Iterable[Finding]) -> list[TextEdit]:
    editor = Editor(meaning.script)
    if code == "guard":
        return list(guard(meaning, editor, [one for one in found if one.code in _GUARDED]))
    edits: list[TextEdit] = []
    for one in (one for one in found if one.code == code):
        for node in one.nodes:
            if code == "removed-api":
                edits += rename(meaning, editor, node, one.problem, one.remedy)
            else:
                edits += _FIXES[code](meaning, editor, node)
    return edits
