"""Cards, tables and curves: what they say, and that a name cannot break out of them."""

import math
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from attrs import field, frozen

from batchhvd.views import curves
from batchhvd.views import notebook as display


@frozen
class Thing:
    """A resource as ``display`` sees one."""

    name: str
    facts: dict[str, Any]
    reasons: tuple[str, ...] = ()
    kind: str = field(default="job")

    def _facts(self) -> Any:
        return self.facts

    def _reasons(self) -> Any:
        return list(self.reasons)


class Texts(HTMLParser):
    """Collects texts, and the tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: Any, attributes: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: Any) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: Any) -> None:
        self.texts.append(data.strip())


def texts(html: str) -> list[str]:
    parser = Texts()
    parser.feed(html)
    assert parser.open == []
    return [text for text in parser.texts if text]


def test_a_card_says_what_it_is_and_how_it_stands() -> None:
    html = display.card(Thing("cifar", {"state": "running", "exit_code": None, "nodes": "4 running"}))
    assert texts(html) == ["cifar", "job", "state", "●", "running", "nodes", "4 running"]
    assert display.GOOD in html


def test_a_card_of_a_failure_says_why() -> None:
    html = display.card(Thing("x", {"state": "failed"}, reasons=("rank 2 ended with 3",)))
    assert texts(html)[-1] == "rank 2 ended with 3"
    assert display.BAD in html


def test_names_cannot_become_markup() -> None:
    html = display.card(Thing("<script>&", {"state": "<b>"}, reasons=("<i>",)))
    assert "<script>" not in html
    assert "<i>" not in html
    assert texts(html)[0] == "<script>&"


def test_a_table_has_a_row_for_each_and_blanks_for_what_is_unknown() -> None:
    html = display.table([Thing("a", {"state": "queued"}), Thing("b", {"exit_code": 0})])
    assert texts(html) == ["job", "state", "exit code", "a", "●", "queued", "b", "0"]
    assert html.count("<tr>") == 3
    assert texts(display.table([])) == ["none"]


RECORDS = [
    {"epoch": 1, "loss": 2.0, "accuracy": 0.25, "val_loss": 1.9, "seconds": 3.5},
    {"epoch": 2, "loss": 1.0, "accuracy": 0.5, "val_loss": math.nan, "seconds": 3.25},
    {"epoch": 3, "loss": 0.5, "accuracy": 0.75, "val_loss": 0.8, "seconds": 3.0},
]


def test_curves_are_well_formed_and_go_the_right_way() -> None:
    root = ElementTree.fromstring(curves.svg(RECORDS))
    lines = [
        [tuple(map(float, point.split(","))) for point in element.get("points", "").split()]
        for element in root.iter("{http://www.w3.org/2000/svg}polyline")
    ]
    loss, val_loss, accuracy = lines
    assert [len(line) for line in lines] == [3, 2, 3]
    assert [x for x, _ in loss] == sorted(x for x, _ in loss)
    assert loss[0][1] < loss[1][1] < loss[2][1]  # falls: y grows downwards
    assert accuracy[0][1] > accuracy[2][1]
    assert val_loss[0][0] == loss[0][0]
    assert {"2", "0.5", "1", "3", "epoch"} <= {element.text for element in root.iter() if element.text}


def test_one_epoch_is_a_point_and_none_is_nothing() -> None:
    assert curves.svg([{"epoch": 1, "loss": 2.0}]).count("<circle") == 1
    assert curves.svg([]) == ""
    assert curves.svg([{"epoch": 1, "seconds": 2.0}]) == ""


def test_a_metric_of_any_name_cannot_become_markup() -> None:
    ElementTree.fromstring(curves.svg([{"epoch": 1, "<f1>&": 2.0}]))


@pytest.mark.parametrize(
    ("values", "line"),
    [([1, 2, 3], "▁▅█"), ([3, 2, 1], "█▅▁"), ([5, 5], "▁▁"), ([], ""), ([1, math.nan, 2], "▁ █")],
)
def test_sparklines(values: Any, line: str) -> None:
    assert curves.sparkline(values) == line


def test_records_show_curves_and_numbers() -> None:
    html = display.records(RECORDS)
    assert "<svg" in html
    assert {"epoch", "loss", "0.5000", "3"} <= set(texts(html))
    assert texts(display.records([])) == ["no epoch has ended yet"]


def test_figures_of_an_epoch_have_the_digits_that_say_something() -> None:
    row = {"epoch": 1, "loss": 2.0, "seconds": 14.2, "images_per_second": 266.4}
    found = texts(display.records([row, {**row, "epoch": 2, "seconds": 9}]))
    head = found.index("images/s")
    assert found[head - 3 : head + 1] == ["epoch", "loss", "seconds", "images/s"]
    assert found[head + 1 : head + 9] == ["1", "2.0000", "14.2", "266", "2", "2.0000", "9.0", "266"]
