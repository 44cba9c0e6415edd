"""A decorator: a call of the function runs it on several ranks."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from batchhvd.functions.packing import name_of
from batchhvd.resources import quick_run
from batchhvd.resources.session import Session, local

if TYPE_CHECKING:
    from batchhvd.resources.function_future import FunctionFuture

P = ParamSpec("P")
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
        name = re.sub("[^A-Za-z0-9_-]+", "-", name_of(self.function)).strip("-") or "function"
        place = quick_run.experiment(self._session or local(), name)
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
