"""Many jobs from one: the points of a parameter space, the places where they go, and when a trial is given up.

    from batchhvd import sweeps

    space = sweeps.grid(rate=[0.1, 0.01], batch=[32, 64])
    sweep = experiment.sweep("digits", spec, space, cluster=cluster, stop=sweeps.asha("val_accuracy")).run()
    sweep.best().point

A spec says ``{rate}`` where a value goes: in the script's path, arguments, variables and directories.
"""

from batchhvd.sweeps.search import Search, optuna
from batchhvd.sweeps.space import (
    Dimension,
    Point,
    Space,
    choice,
    grid,
    integer,
    loguniform,
    points,
    random,
    uniform,
)
from batchhvd.sweeps.stopping import Asha, Median, Stopping, asha, median

__all__ = [
    "Asha",
    "Dimension",
    "Median",
    "Point",
    "Search",
    "Space",
    "Stopping",
    "asha",
    "choice",
    "grid",
    "integer",
    "loguniform",
    "median",
    "optuna",
    "points",
    "random",
    "uniform",
]
