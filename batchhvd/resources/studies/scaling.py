"""How many ranks pay, measured with short jobs on a cluster, one after another."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from batchhvd.advice.plan import locate
from batchhvd.advice.scaling.judgement import ScaleAdvice, advise
from batchhvd.advice.scaling.measurement import ScaleRun, read_run
from batchhvd.errors import SpecError
from batchhvd.spec.cluster import AutoScale
from batchhvd.spec.toolkits import Horovod

if TYPE_CHECKING:
    from batchhvd.resources.cluster import Cluster
    from batchhvd.resources.experiment import Experiment
    from batchhvd.spec.job import JobSpec
    from batchhvd.wire.waiting import Report

ANSWER = "scale.json"
"""The file beside the logs that a measured run writes."""

_STARTER = ".batchhvd/measured_rank.py"
_PROGRAM = b'''"""Runs a script as one rank of a measured run; see the page How many ranks?."""

import sys

from batchhvd.trainer.scaling.rank import main

sys.exit(main())
'''


@frozen
class Measuring:
    """How to measure.

    Attributes:
        ranks: the numbers of ranks.
        name: the jobs' name, before ``-scale-N``.
        seconds: the most that one measurement takes, after the warm-up.
        precision: half the width of the 95 % interval of a step's time, divided by it, that is enough.
    """

    ranks: Sequence[int]
    name: str
    seconds: float
    precision: float


def scale(
    experiment: Experiment, spec: JobSpec, cluster: Cluster, how: Measuring, report: Report | None
) -> ScaleAdvice:
    """Measures each number of ranks with a job; ``Experiment.scale`` describes the arguments."""
    task = spec.task
    mount, _ = locate(spec.logs, spec.mounts)
    if not isinstance(task, Horovod) or mount is None:
        problem = "only a Horovod task with its logs on a share can be measured"
        raise SpecError(problem, remedy="measure another one with python -m batchhvd.trainer scale")
    share = experiment.group.storage_account(mount.account).share(mount.share)
    share.create_directory(_STARTER.rpartition("/")[0])
    share._put(_STARTER, _PROGRAM)
    options = f"--seconds {how.seconds} --precision {how.precision}"
    args = f'--answer "$AZ_BATCHAI_STDOUTERR_DIR/{ANSWER}" {options} "{task.script}" {task.args}'.strip()
    measured = evolve(task, script=mount / _STARTER, args=args, processes=None)
    runs = []
    for size in sorted({1, *how.ranks}):
        if report is not None:
            report(f"measuring {size} {'rank' if size == 1 else 'ranks'}")
        name = experiment.next_name(f"{how.name}-scale-{size}")
        runs.append(_run(experiment, name, evolve(spec, nodes=size, task=measured), cluster))
    return advise(runs)


def possible(cluster: Cluster, ranks: Sequence[int]) -> list[int]:
    """Returns the numbers of ranks for which a cluster has nodes; a warning names the others."""
    target = cluster.refresh().target
    most = target.maximum if isinstance(target, AutoScale) else target
    over = [size for size in ranks if size > most]
    if over:
        text = f"cluster {cluster.name!r} has at most {most} nodes: {', '.join(map(str, over))} ranks are not measured"
        warnings.warn(text, UserWarning, stacklevel=4)
    return [size for size in ranks if size <= most]


def _run(experiment: Experiment, name: str, spec: JobSpec, cluster: Cluster) -> ScaleRun:
    job = experiment.create_job(name, spec, cluster=cluster).wait()
    (answer,) = (file for file in job.files() if file.name == ANSWER)
    return read_run(answer.text())
