"""Spaces, the places of their values, and the rules that give trials up."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchhvd import CustomToolkit, Horovod, JobSpec, Mount, OutputDirectory, SpecError, sweeps
from batchhvd.resources.sweep_record import Definition, run_name
from batchhvd.sweeps.stopping import rule
from batchhvd.sweeps.template import check, fill

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,7}", fullmatch=True)
VALUES = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8), st.booleans())
MOUNT = Mount("account", "share", "data")


def spec(args: str = "", **more: object) -> JobSpec:
    task = Horovod(script=MOUNT / "{name}.py" if "name" in more else MOUNT / "train.py", args=args)
    more.pop("name", None)
    return JobSpec(nodes=1, task=task, mounts=[MOUNT], logs=MOUNT / "logs", **more)  # type: ignore[arg-type]


@given(st.dictionaries(NAMES, st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_grid_has_each_combination_once_in_order(values: dict[str, list[object]]) -> None:
    space = sweeps.grid(**values)  # type: ignore[arg-type]
    assert [tuple(point.values()) for point in space.points] == list(itertools.product(*values.values()))
    assert space.names == tuple(values)


@given(st.integers(), st.floats(1e-6, 1), st.floats(1.5, 1e6))
def test_random_points_are_the_same_each_time_and_within_their_bounds(seed: int, low: float, high: float) -> None:
    def drawn() -> tuple[sweeps.Point, ...]:
        dimensions = {"a": sweeps.loguniform(low, high), "b": sweeps.uniform(-low, high), "c": sweeps.integer(1, 3)}
        return sweeps.random(20, seed=seed, **dimensions, d=[True, "x"]).points

    assert drawn() == drawn()
    for point in drawn():
        assert low <= float(point["a"]) <= high
        assert -low <= float(point["b"]) <= high
        assert point["c"] in (1, 2, 3)
        assert point["d"] in (True, "x")


def test_random_points_are_these_on_every_machine() -> None:
    space = sweeps.random(2, seed=1, rate=sweeps.loguniform(1e-3, 0.1), batch=[32, 64])
    assert [(round(float(point["rate"]), 9), point["batch"]) for point in space.points] == [
        (0.001856643, 32),
        (0.003236965, 64),
    ]
    assert space.text == "2 random: rate loguniform(0.001, 0.1), batch choice(32, 64); seed 1"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sweeps.grid(), "at least one point"),
        (lambda: sweeps.grid(rate=[]), "rate has no values"),
        (lambda: sweeps.grid(rate="0.1"), r"rate needs a list of values, not '0.1'; give rate=\['0.1'\]"),
        (
            lambda: sweeps.grid(rate=sweeps.uniform(0, 1)),  # type: ignore[arg-type]
            "which has no end; draw from it with random",
        ),
        (lambda: sweeps.grid(a=range(1000), b=range(1000)), "1000000 combinations are more than 100000"),
        (lambda: sweeps.grid(rate=[math.nan]), "rate is nan"),
        (
            lambda: sweeps.grid(rate=[None]),  # type: ignore[list-item]
            "rate is None",
        ),
        (lambda: sweeps.random(0, a=[1]), "n must be a whole number"),
        (lambda: sweeps.uniform(2, 1), "a lower and a higher number"),
        (lambda: sweeps.loguniform(0, 1), "numbers above 0"),
        (
            lambda: sweeps.integer(1.5, 3),  # type: ignore[arg-type]
            "whole numbers",
        ),
        (lambda: sweeps.choice(), "at least one value"),
        (lambda: sweeps.points([{"a": 1}, {"b": 1}]), "give each the same names"),
        (lambda: sweeps.points([{"a b": 1}]), "'a b' is no name of a parameter"),
        (lambda: sweeps.asha("x", goal="best"), "goal must be max or min"),
        (lambda: sweeps.asha("x", factor=1), "factor must be a whole number of at least 2"),
        (lambda: sweeps.median("x", after=0), "after must be a whole number of at least 1"),
        (lambda: Definition(spec(), ({"a": 1},), "", "c", at_once=0), "at_once must be"),
    ],
)
def test_what_is_refused_names_what_is_wrong(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


def test_values_go_to_their_places_and_nowhere_else() -> None:
    made = spec(
        "--rate {rate} --json '{\"rate\": 1}' ${rate} {{rate}}",
        name=True,
        environment={"RATE": "{rate}", "HOME": "${HOME}"},
        secrets={"KEY": "{rate}"},
        preparation="echo {name}",
        outputs=[OutputDirectory("MODEL", MOUNT / "{name}")],
    )
    assert check(made, ("rate", "name", "idle")) == ["idle"]
    filled = fill(made, {"rate": 0.1, "name": "a b", "idle": True})
    assert isinstance(filled.task, Horovod)
    assert str(filled.task.script).endswith("/data/a b.py")
    assert filled.task.args == "--rate 0.1 --json '{\"rate\": 1}' ${rate} {0.1}"
    assert filled.secrets == {"KEY": "{rate}"}
    assert (filled.preparation, filled.outputs[0].prefix) == ("echo a b", MOUNT / "a b")
    assert filled.environment == {
        **{"RATE": "0.1", "HOME": "${HOME}", "PARAM_RATE": "0.1", "PARAM_NAME": "a b", "PARAM_IDLE": "True"},
        "BATCHHVD_POINT": json.dumps({"idle": True, "name": "a b", "rate": 0.1}),
    }


def test_a_place_that_nothing_stands_for_is_refused() -> None:
    with pytest.raises(SpecError, match=r"nothing stands for \{rat\} in the job; the space has \{rate\}"):
        check(spec("{rat}"), ("rate",))


@given(VALUES)
def test_a_number_reads_back_as_the_same_number(value: str | float | bool) -> None:
    filled = fill(JobSpec(nodes=1, task=CustomToolkit("run {x}"), logs="/x"), {"x": value})
    assert isinstance(filled.task, CustomToolkit)
    text = filled.task.command.removeprefix("run ")
    assert text == value if isinstance(value, str) else eval(text) == value


CURVES = st.dictionaries(st.integers(1, 30), st.lists(st.floats(-1, 1), max_size=30), max_size=30)


@given(CURVES, st.integers(1, 4), st.integers(2, 4), st.sampled_from(["max", "min"]))
def test_successive_halving_keeps_the_best_of_each_rung(
    curves: dict[int, list[float]], first: int, factor: int, goal: str
) -> None:
    lost = sweeps.asha("x", goal=goal, first=first, factor=factor).lost(curves)
    assert all(len(curves[trial]) >= first for trial in lost)
    for rung in (first * factor**power for power in range(6)):
        at = {trial: curve[rung - 1] for trial, curve in curves.items() if len(curve) >= rung}
        if len(at) < factor:
            continue
        kept = [trial for trial in at if trial not in lost]
        assert len(kept) <= max(1, len(at) // factor)
        if kept:  # nobody who is worse than one who was lost here alone
            best = max(at.values()) if goal == "max" else min(at.values())
            others = {trial for trial in at if at[trial] == best}
            assert others & set(kept) or others & lost


def test_the_median_rule_waits_for_others_and_epochs() -> None:
    found = sweeps.median("x", after=2, least=2)
    curves = {1: [0.5, 0.6], 2: [0.5, 0.7], 3: [0.1, 0.2], 4: [0.0]}
    assert found.lost(curves) == {3}
    assert found.lost({3: [0.1, 0.2], 1: [0.5, 0.6]}) == set()
    assert sweeps.median("x", goal="min", after=2, least=2).lost(curves) == {1, 2} - {1} | (
        {1} if 0.5 > 0.375 else set()
    )


def test_less_is_better_of_losses_and_errors_unless_said_otherwise() -> None:
    assert [sweeps.asha(metric).goal for metric in ("val_loss", "mean_absolute_error", "accuracy", "auc")] == [
        *("min", "min", "max", "max")
    ]
    assert sweeps.median("val_loss", goal="max").goal == "max"


@pytest.mark.parametrize("goal", ["max", "min"])
def test_a_diverged_training_is_the_worst(goal: str) -> None:
    nan = float("nan")
    curves = {1: [0.5], 2: [nan], 3: [0.4], 4: [nan, nan]}
    assert {2, 4} <= sweeps.asha("x", goal=goal, first=1, factor=2).lost(curves)
    assert {2, 4} & sweeps.median("x", goal=goal, least=2).lost(curves) == {2}


@pytest.mark.parametrize("made", [sweeps.asha("a", goal="min", first=2, factor=4), sweeps.median("b", after=3), None])
def test_a_rule_comes_back_from_its_description(made: sweeps.Stopping | None) -> None:
    assert rule(json.loads(json.dumps(made.describe() if made else None))) == made


def test_runs_of_a_trial_are_numbered() -> None:
    assert run_name("digits", 3, "") == "digits_0003"
    assert run_name("digits", 3, "digits_0003") == "digits_0003-0002"
    assert run_name("digits", 12345, "digits_12345-0002") == "digits_12345-0003"
