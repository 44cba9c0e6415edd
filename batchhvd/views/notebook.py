"""How resources look in a notebook: a card for one, a table for many, curves for a training.

Plain HTML that takes fonts and colours from the page around it, so that it reads on light and dark. IPython is not
needed: notebooks ask every object for ``_repr_html_``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from batchhvd.views import curves
from batchhvd.views.viewable import Viewable, mood

GOOD, BUSY, BAD = "#2e9e5b", "#d9920d", "#d64545"
_COLOURS = {"good": GOOD, "busy": BUSY, "bad": BAD, "": "rgba(128,128,128,.6)"}
_BOX = (
    "display:inline-block;min-width:20em;padding:.6em .9em;margin:.2em 0;border:1px solid rgba(128,128,128,.35);"
    "border-left:4px solid {};border-radius:6px;line-height:1.45"
)
_DIM = "opacity:.65"
_CELL = "padding:.25em .9em .25em 0;text-align:left"


def card(resource: Viewable) -> str:
    """Returns a resource as a card: its kind, its state, and the reasons if something is wrong."""
    facts = _facts(resource)
    rows = "".join(
        f'<div><span style="{_DIM}">{escape(_label(name))}</span>&nbsp; {_value(name, value)}</div>'
        for name, value in facts.items()
    )
    reasons = "".join(f'<div style="color:{BAD}">{escape(reason)}</div>' for reason in resource._reasons())
    head = _head(resource.name, resource.kind)
    return f'<div style="{_BOX.format(_colour(facts))}">{head}{rows}{reasons}</div>'


def unread(name: str, kind: str) -> str:
    """Returns a resource of which nothing is known yet as a card."""
    said = f'<div style="{_DIM}">not read yet: <code>refresh()</code> reads it</div>'
    return f'<div style="{_BOX.format(_COLOURS[""])}">{_head(name, kind)}{said}</div>'


def _head(name: str, kind: str) -> str:
    return f'<b>{escape(name)}</b> <span style="{_DIM}">{escape(kind)}</span>'


def table(resources: Sequence[Viewable]) -> str:
    """Returns resources as a table, one row each."""
    if not resources:
        return f'<span style="{_DIM}">none</span>'
    facts = [_facts(resource) for resource in resources]
    names = list(dict.fromkeys(name for row in facts for name in row))
    head = _row([resources[0].kind, *map(_label, names)], "th")
    body = [
        _row([escape(resource.name), *(_value(name, row.get(name)) for name in names)], "td")
        for resource, row in zip(resources, facts, strict=True)
    ]
    return _table(head, body)


def records(rows: Sequence[Mapping[str, float]]) -> str:
    """Returns the records of a training as curves above a table, one row per epoch."""
    if not rows:
        return f'<span style="{_DIM}">no epoch has ended yet</span>'
    names = list(dict.fromkeys(name for row in rows for name in row))
    body = [_row([_number(name, row.get(name)) for name in names], "td") for row in rows]
    return f"<div>{curves.svg(rows)}{_table(_row([*map(_label, names)], 'th'), body)}</div>"


def rows(found: Sequence[Mapping[str, object]]) -> str:
    """Returns a table of any rows, a column for each name in the order of appearance."""
    if not found:
        return f'<span style="{_DIM}">none</span>'
    names = list(dict.fromkeys(name for row in found for name in row))
    body = [_row([_cell(row.get(name)) for name in names], "td") for row in found]
    return _table(_row(names, "th"), body)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else escape("" if value is None else str(value))


def _colour(facts: Mapping[str, object]) -> str:
    """Returns the colour of how a resource stands: green, amber, red, or grey when nothing is known."""
    return _COLOURS[mood(facts.get("state") or facts.get("provisioning"))]


def _facts(resource: Viewable) -> dict[str, object]:
    return {name: value for name, value in resource._facts().items() if value not in ("", None)}


def _value(name: str, value: object) -> str:
    text = escape("" if value is None else str(value))
    meaning = mood(value) if name in ("state", "provisioning") else ""
    return f'<span style="color:{_COLOURS[meaning]}">&#9679;</span> {text}' if meaning else text


def _label(name: str) -> str:
    """Returns the name of a value for people, as terminals have it too."""
    return "images/s" if name == "images_per_second" else name.replace("_", " ")


def _number(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "seconds":
        return f"{value:.1f}"
    return f"{value:.0f}" if name in ("epoch", "images_per_second") else f"{value:.4f}"


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f'<{tag} style="{_CELL}">{cell}</{tag}>' for cell in cells) + "</tr>"


def _table(head: str, body: Sequence[str]) -> str:
    return f'<table style="border-collapse:collapse"><thead>{head}</thead><tbody>{"".join(body)}</tbody></table>'
