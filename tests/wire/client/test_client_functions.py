"""A function as a job: values, exceptions and what is refused, over the service and its share."""

from __future__ import annotations

import functools
import os
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import batchhvd
from batchhvd import JobFailedError, NotFoundError, RemoteError, SpecError, WaitTimeoutError, sweeps
from batchhvd.functions import __main__ as runner


class Point:
    """A class that only this program has."""

    def __init__(self, x: float) -> None:
        self.x = x


class OddError(Exception):
    """An exception that can be pickled and not be read."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)


SCALE = 10


def scaled(rate: float, *, by: int = 1) -> Point:
    rank = int(os.environ["HOROVOD_RANK"])
    print("rank", rank, "rate", rate, flush=True)
    return Point(rate * by * SCALE + rank)


def fails_on_one() -> None:
    if os.environ["HOROVOD_RANK"] == "1":
        raise ValueError("rate is wrong")
    time.sleep(60)


@pytest.fixture
def experiment(service: Any) -> Iterator[Any]:
    group = batchhvd.local(service.root).create_group("functions")
    yield group.create_workspace("w").create_experiment("sums")
    group.delete()


def test_what_a_function_returns_comes_back_from_every_rank(experiment: Any) -> None:
    future = experiment.submit(scaled, 2, by=3, nodes=2)
    found = future.results(timeout=60)
    assert [type(one) for one in found] == [Point, Point]
    assert [one.x for one in found] == [60, 61] and future.result().x == 60
    assert sorted("".join(future.job.stream()).splitlines()) == ["rank 0 rate 2", "rank 1 rate 2"]
    assert future.done() and not future.cancel() and future.exception() is None
    later = pickle.loads(pickle.dumps(experiment)).future(future.job.name)  # as another program has it
    assert later.result().x == 60


def test_an_exception_comes_back_with_its_traceback(experiment: Any) -> None:
    future = experiment.submit(fails_on_one, nodes=2, name="wrong")
    assert future.job.name == "wrong"
    with pytest.raises(ValueError, match="rate is wrong") as caught:
        future.result(timeout=60)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteError) and cause.rank == 1
    assert "in fails_on_one" in cause.traceback and "run_function" not in cause.traceback
    assert "in fails_on_one" in future.job.wait("ended")._log("stderr.txt").decode()


def test_what_cannot_come_back_is_said(experiment: Any) -> None:
    calls = [lambda: (_ for _ in ()), lambda: os.kill(os.getpid(), 9), lambda: os._exit(0), _odd]
    values, killed, left, odd = [experiment.submit(call) for call in calls]
    with pytest.raises(TypeError, match="what <lambda> returned, a generator, cannot be pickled"):
        values.result(timeout=60)
    with pytest.raises(JobFailedError, match="SIGKILL"):
        killed.result(timeout=60)
    with pytest.raises(NotFoundError, match=r"ended without a value.*_exit"):
        left.result(timeout=60)
    with pytest.raises(RemoteError, match=r"raised:\n\nTraceback[^$]*OddError: 1"):
        odd.result(timeout=60)


def _odd() -> None:
    raise OddError(1, 2)


def test_another_minor_version_is_refused_before_anything_is_unpickled(
    experiment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "versions_of", lambda pickled: {"python": "3.9.1"})
    future = experiment.submit(scaled, 2)
    own = "{}.{}".format(*sys.version_info)
    with pytest.raises(RemoteError, match=rf"scaled was not started: .* has Python 3\.9\.1, the node has {own}"):
        future.result(timeout=60)
    assert "rate" not in "".join(future.job.stream())


def test_versions_are_those_that_the_pickle_needs() -> None:
    import attrs
    import cloudpickle

    needed = runner.versions_of(cloudpickle.dumps((attrs, attrs.Factory, len, json_like)))
    assert set(needed) == {"python", "attrs"}
    assert runner.difference(needed, "here", "there") == ""
    assert runner.difference({"attrs": "1.0"}, "here", "there").startswith("there has attrs 1.0, here has ")
    assert runner.difference({"no-such": "1.0"}, "here", "there") == "there has no-such 1.0, here has no no-such"


json_like = {"a": "attrs", "b": "click"}  # texts are no modules


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda it: it.submit(scaled), "scaled cannot be called so: missing a required argument: 'rate'"),
        (lambda it: it.submit(scaled, 1, speed=2), "unexpected keyword argument 'speed'"),
        (lambda it: it.submit(lambda nodes: nodes), r"missing a required .*functools\.partial\(<lambda>, nodes=…\)"),
        (lambda it: it.submit(lambda nodes=1: nodes, nodes=2), "<lambda> has an argument 'nodes' too"),
        (lambda it: it.submit(3), "3 is not a function"),
        (lambda it: it.submit(scaled, sys._getframe()), "scaled or something that it uses cannot be sent.*frame"),
        (lambda it: it.submit(scaled, 1, code="missing"), "no folder 'missing'"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_made(experiment: Any, call: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        call(experiment)
    assert not list(experiment.workspace.clusters()) and not list(experiment.group.storage_accounts())


def test_modules_below_code_are_uploaded(experiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my code").mkdir()
    (tmp_path / "my code" / "helper_of_code.py").write_text("def where():\n    return __file__\n")
    monkeypatch.syspath_prepend(str(tmp_path / "my code"))
    import helper_of_code  # type: ignore[import-not-found]  # made above

    call = functools.partial(helper_of_code.where)
    assert "/code/" in experiment.submit(call, code=tmp_path / "my code").result(timeout=60)
    assert experiment.submit(helper_of_code.where).result(timeout=60) == helper_of_code.__file__  # by value


def test_a_wait_for_a_result_has_an_end_and_leaves_the_job(experiment: Any) -> None:
    future = experiment.submit(time.sleep, 60)
    with pytest.raises(WaitTimeoutError):
        future.result(timeout=0.2)
    assert future.cancel() and future.done()
    with pytest.raises(JobFailedError):
        future.result()


def test_a_decorated_function_runs_on_ranks(service: Any, capfd: pytest.CaptureFixture[str]) -> None:
    session = batchhvd.local(service.root)

    @batchhvd.distributed(nodes=2, session=session)
    def total(nodes: int) -> int:
        print("there", flush=True)
        return nodes + int(os.environ["HOROVOD_SIZE"]) if nodes < 5 else total(nodes - 5)

    assert total(nodes=6) == 3  # on the ranks it is the plain function
    assert capfd.readouterr().out.count("there") == 4
    assert total.submit(1).results(timeout=60) == [3, 3]
    assert total.function.__name__ == "total"
    session.group("batchhvd").delete()


def area(width: int, height: int, *, unit: str = "m") -> str:
    if height > 5:
        raise ValueError(f"{height} is too high")
    return f"{width * height} {unit}"


def test_a_function_is_mapped_over_the_points_of_a_space(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = batchhvd.local(service.root)
    try:
        space = sweeps.grid(width=[2, 3], height=[1, 4])
        mapped = batchhvd.map(area, space, at_once=2, session=session)
        assert mapped.results(timeout=120) == ["2 m", "8 m", "3 m", "12 m"]
        assert [future.job.name for future in mapped] == [f"area-0001_000{number}" for number in range(1, 5)]
        assert len(mapped) == 4 and mapped.sweep.table()[1]["height"] == 4
        again = batchhvd.map(area, sweeps.points([{"width": 1, "height": 1, "unit": "km"}]), session=session)
        assert again.results(timeout=60) == ["1 km"], "another call runs again"
        assert "area-0002" in repr(again)
        with pytest.raises(SpecError, match="area cannot be called so"):
            batchhvd.map(area, sweeps.grid(wide=[1]), session=session)
        with pytest.raises(ValueError, match="9 is too high") as caught:
            batchhvd.map(area, sweeps.grid(width=[1], height=[9]), session=session).results(timeout=60)
        assert isinstance(caught.value.__cause__, RemoteError)
    finally:
        session.group("batchhvd").delete()
