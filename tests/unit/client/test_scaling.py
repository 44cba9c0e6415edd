"""The adviser's model and its words: known parameters come back from what they would have made."""

from __future__ import annotations

import math

import pytest
from attrs import evolve
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from batchhvd import SpecError
from batchhvd.advice.scaling import model as models
from batchhvd.advice.scaling.judgement import advise
from batchhvd.advice.scaling.measurement import ScaleRun, read_run
from batchhvd.advice.scaling.model import RankPlace, ScaleModel

LOADED = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # on a machine that others use
SECONDS = st.floats(1e-4, 1.0)
MODELS = st.builds(
    ScaleModel,
    fixed=SECONDS,
    sample=st.floats(1e-5, 1e-2),
    work=st.floats(1.0, 2.0),
    latency=st.floats(1e-5, 1e-2),
    per_byte=st.floats(1e-11, 1e-7),
    reductions=st.just(1),
    dense=st.floats(1e3, 1e8),
    sparse=st.one_of(st.just(0.0), st.floats(1e3, 1e7)),
    input=st.floats(0, 1e-4),
    batch=st.just(32.0),
)


def run(model: ScaleModel, ranks: int, *, machines: int = 1, cores: int = 2, batch: int = 32) -> ScaleRun:
    """Returns what would be measured if the model were the truth."""
    place = RankPlace(ranks, ranks // machines, cores, batch)
    step = model.predict(place)
    doubled = model.predict(evolve(place, batch=2 * batch))
    return ScaleRun(
        ranks=ranks,
        machines=machines,
        cores=cores,
        threads=1,
        batch=batch,
        step=step.whole,
        input=step.input,
        compute=step.compute,
        exchange=step.exchange,
        dense_bytes=model.dense,
        sparse_bytes=model.sparse * batch / model.batch,
        latency=place.crowd * model.latency * math.log2(ranks) if ranks > 1 else 0.0,
        double=doubled.compute if ranks == 1 else None,
    )


@LOADED
@given(MODELS)
def test_known_parameters_are_recovered_from_what_they_make(model: ScaleModel) -> None:
    found = models.fit([run(model, ranks) for ranks in (1, 2, 4)])
    for name in ("fixed", "sample", "work", "latency", "input"):
        assert getattr(found, name) == pytest.approx(getattr(model, name), rel=1e-3, abs=1e-9), name
    assert found.per_byte == pytest.approx(model.per_byte, rel=0.02, abs=1e-3 / model.dense)


@LOADED
@given(MODELS)
def test_a_rank_count_that_was_left_out_is_predicted_if_the_model_is_true(model: ScaleModel) -> None:
    errors = models.left_out([run(model, ranks) for ranks in (1, 2, 4)])
    assert errors.keys() == {2, 4}
    assert max(map(abs, errors.values())) < 0.01


@LOADED
@given(MODELS, st.floats(0.5, 2.0))
def test_a_rate_that_was_measured_wrongly_is_an_error_and_not_fitted_away(model: ScaleModel, factor: float) -> None:
    assume(not 0.7 < factor < 1.4)
    one, two, four = (run(model, ranks) for ranks in (1, 2, 4))
    off = evolve(four, step=four.step * factor, compute=four.compute * factor, exchange=four.exchange * factor)
    assert models.left_out([one, two, off])[4] == pytest.approx(factor - 1, abs=0.02)


def test_nothing_is_predicted_from_one_rank_alone() -> None:
    model = ScaleModel(0.01, 0.001, 1.5, 1e-3, 1e-9, 1, 1e6, 0.0, 0.0, 32.0)
    assert models.left_out([run(model, 1), run(model, 2)]) == {}
    with pytest.raises(SpecError, match="one rank was not measured"):
        advise([run(model, 2)])


COMPUTING = ScaleModel(0.0, 0.003, 2.0, 1e-4, 1e-10, 1, 1e6, 0.0, 0.0, 32.0)
SENDING = ScaleModel(0.001, 0.0004, 2.0, 1e-3, 4e-9, 1, 5e6, 0.0, 0.0, 16.0)


def test_on_a_cluster_ranks_that_pay_are_advised() -> None:
    advice = advise([run(COMPUTING, ranks, machines=ranks, cores=8) for ranks in (1, 2, 4)])
    assert advice.fastest == 4
    assert advice.cheapest == 1
    assert "Take 4 ranks: they are worth 3.9" in advice.sentence
    assert "The cheapest is one rank." in advice.sentence
    assert "for itself" in advice.place


def test_an_exchange_that_costs_more_than_ranks_bring_is_advised_against_with_what_would_help() -> None:
    slow = evolve(SENDING, per_byte=8e-9)
    advice = advise([run(slow, ranks, machines=ranks, cores=8, batch=16) for ranks in (1, 2, 4)])
    assert advice.fastest == advice.cheapest == 1
    assert "Do not scale: 4 ranks are worth" in advice.sentence
    assert f"{advice.rows[-1].exchange / advice.runs[-1].step:.0%} of a step is exchange" in advice.sentence
    assert "Larger batches (128) would make 4 ranks worth" in advice.sentence
    assert any("fp16" in text for text in advice.helps)
    assert any("Accumulation" in text for text in advice.helps)


def test_cores_that_ranks_share_are_not_charged_to_the_exchange() -> None:
    """Two cores that one rank keeps busy: N ranks are worth 1 even if the exchange takes no time."""
    advice = advise([run(COMPUTING, ranks) for ranks in (1, 2, 4)])
    assert advice.fastest == 1
    for row in advice.rows[1:]:
        assert row.free == pytest.approx(1.0, abs=0.01)
        assert row.exchange / (row.compute + row.exchange) < 0.02
    assert "share the 2 cores of one machine" in advice.place
    assert "would be worth 1.00 here" in advice.place
    assert "not a promise" in advice.place


def test_a_part_that_uses_one_core_makes_ranks_of_one_machine_worth_more_than_one() -> None:
    advice = advise([run(evolve(COMPUTING, work=1.2), ranks) for ranks in (1, 2, 4)])
    assert advice.fastest == 2
    assert advice.rows[1].worth == pytest.approx(2 / 1.2, rel=0.02)


def test_what_is_within_the_interval_is_no_reason_for_more_ranks_and_the_sentence_says_so() -> None:
    runs = [evolve(run(evolve(COMPUTING, work=1.8), ranks), spread=0.2) for ranks in (1, 2, 4)]
    advice = advise(runs)
    assert advice.rows[1].worth > 1.1
    assert advice.fastest == 1
    assert "Nothing shows that more ranks pay: 4 may be worth" in advice.sentence
    assert "But the rates are known to 20% only" in advice.sentence


def test_threads_and_data_are_named_when_they_are_the_cause() -> None:
    one, two = (run(evolve(COMPUTING, input=0.001), ranks) for ranks in (1, 2))
    advice = advise([one, evolve(two, threads=0)])
    assert any(text.startswith("Fewer threads: 2 ranks start as many threads each") for text in advice.helps)
    assert any(text.startswith("Data: 14% of a step") for text in advice.helps)


def test_the_text_has_a_line_a_bar_and_the_sentence() -> None:
    advice = advise([run(COMPUTING, ranks) for ranks in (1, 2, 4)])
    lines = str(advice).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "4"]
    assert lines[6].startswith("  1 rank  █") and lines[6].endswith("fastest")
    assert any(line.startswith("Do not scale: 4 ranks") for line in lines)
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ranks": 1}'])
def test_a_file_that_no_measured_run_wrote_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="not the result of a measured run"):
        read_run(text)
