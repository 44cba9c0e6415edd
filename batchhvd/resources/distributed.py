"""Functions on several ranks without more ado: a decorator, and a map over the points of a space."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from batchhvd.errors import SpecError
from batchhvd.functions import packing
from batchhvd.resources import function_future, quick_run, runs
from batchhvd.resources.function_future import FunctionFuture, HowToRun
from batchhvd.resources.session import Session, local

if TYPE_CHECKING:
    from batchhvd.resources.sweep import Sweep
    from batchhvd.sweeps import Space, Stopping

P = ParamSpec("P")
_TRIAL = re.compile(r"(.+-[0-9]{4,})_[0-9]{4,}(-[0-9]+)?")  # the job of a map's trial
V = TypeVar("V")


def distributed(
    *,
    nodes: int = 1,
    code: str | os.PathLike[str] | None = None,
    preparation: str = "",
    environment: str | os.PathLike[str] | None = None,
    session: Session | None = None,
) -> Callable[[Callable[P, V]], DistributedFunction[P, V]]:
    """Makes a function run on several ranks when it is called, one on each node.

    Args:
        nodes: how many nodes.
        code: a folder whose modules it imports, as for ``Experiment.submit``.
        preparation: a shell command line that runs on each node before.
        environment: a file of requirements for a virtual environment, as for ``Session.run``.
        session: the service; None for ``local()``.
    """

    def decorate(function: Callable[P, V]) -> DistributedFunction[P, V]:
        return DistributedFunction(
            function, nodes=nodes, code=code, preparation=preparation, environment=environment, session=session
        )

    return decorate


class DistributedFunction(Generic[P, V]):
    """A function whose calls run on several ranks; on the ranks themselves it is the plain function.

    Attributes:
        function: the plain function.
    """

    def __init__(
        self,
        function: Callable[P, V],
        *,
        nodes: int,
        code: str | os.PathLike[str] | None,
        preparation: str,
        environment: str | os.PathLike[str] | None,
        session: Session | None,
    ) -> None:
        """Creates it; ``distributed`` describes the arguments."""
        functools.update_wrapper(self, function)
        self.function = function
        self._nodes, self._code, self._preparation = nodes, code, preparation
        self._environment, self._session = environment, session

    def __call__(self, *args: P.args, **arguments: P.kwargs) -> V:
        """Runs the function on all ranks, prints what they print, and returns what it returned on rank 0."""
        future = self.submit(*args, **arguments)
        for text in future.job.stream():
            print(text, end="", flush=True)
        return future.result()

    def submit(self, *args: P.args, **arguments: P.kwargs) -> FunctionFuture[V]:
        """Starts the function on all ranks and returns a future without waiting for it."""
        place = quick_run.experiment(self._session or local(), _named(self.function))
        call = functools.partial(self.function, *args, **arguments)
        return place.submit(
            call,
            nodes=self._nodes,
            code=self._code,
            preparation=self._preparation,
            environment=self._environment,
        )

    def __reduce__(self) -> tuple[type[functools.partial[V]], tuple[Callable[P, V]]]:
        return functools.partial, (self.function,)  # a node need not have this package


def map(
    function: Callable[..., V],
    space: Space,
    *,
    nodes: int = 1,
    at_once: int = 1,
    stop: Stopping | None = None,
    code: str | os.PathLike[str] | None = None,
    preparation: str = "",
    environment: str | os.PathLike[str] | None = None,
    name: str | None = None,
    session: Session | None = None,
) -> MappedFunction[V]:
    """Runs a function for each point of a space, each as a job, and returns without waiting for them.

    It is a sweep: ``map(train, sweeps.grid(rate=[0.1, 0.01])).results()``.

    Args:
        function: the function; the point's values are its arguments by name.
        space: the points.
        nodes: how many nodes each call gets, one rank on each.
        at_once: how many calls run at the same time: the cluster for all runs grows to so many times ``nodes``.
        stop: the rule by which trials are given up.
        code: a folder whose modules it imports, as for ``Experiment.submit``.
        preparation: a shell command line that runs on each node before.
        environment: a file of requirements for a virtual environment, as for ``Session.run``.
        name: the sweep's name, to go on with one that was interrupted; None for a new one with the next number.
        session: the service; None for ``local()``.

    Raises:
        SpecError: the function cannot be called so, or something in it cannot be pickled.
        ConflictError: there is a sweep of this name with another function or other points.
    """
    if not space.points:
        raise SpecError("map takes points that are known before", remedy="search with experiment.sweep()")
    packing.check_call(function, (), space.points[0], (), ())
    own = _named(function)
    place = quick_run.experiment(session or local(), own)
    spec = function_future.described(place, function, (), {}, HowToRun(nodes, code, preparation, environment))
    on = quick_run.cluster(place.workspace, nodes * at_once)
    taken = (found[1] for found in (_TRIAL.fullmatch(job.name) for job in place.jobs()) if found)
    sweep = place.sweep(name or runs.next_name(own, taken), spec, space, cluster=on, stop=stop)
    return MappedFunction(sweep.submit())


class MappedFunction(Generic[V]):
    """The calls of a function for the points of a space, in their order.

    Attributes:
        sweep: the sweep of their jobs: ``table()``, ``best()``, ``retry()``, ``stop()``.
    """

    def __init__(self, sweep: Sweep) -> None:
        """Creates it; ``map`` does."""
        self.sweep = sweep

    def results(self, timeout: float | None = None) -> list[V | None]:
        """Waits for all calls and returns what the function returned on rank 0, None for calls that were given up.

        Args:
            timeout: seconds, or None for a week.

        Raises:
            WaitTimeoutError: the time is over; the calls go on.
            Exception: what the function raised for the first point that failed, as ``FunctionFuture.result`` does.
        """
        self.sweep.run(timeout=timeout)
        given_up = [trial.state == "given up" for trial in self.sweep]
        return [None if left else future.result() for left, future in zip(given_up, self, strict=True)]

    def __iter__(self) -> Iterator[FunctionFuture[V]]:
        """Yields a future for each call."""
        return (FunctionFuture(trial.job) for trial in self.sweep if trial.job)

    def __len__(self) -> int:
        return len(self.sweep)

    def __repr__(self) -> str:
        return f"MappedFunction({self.sweep!r})"


def _named(function: Callable[..., object]) -> str:
    """Returns the name of a function as the name of an experiment."""
    return re.sub("[^A-Za-z0-9_-]+", "-", packing.name_of(function)).strip("-") or "function"
