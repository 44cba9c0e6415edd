"""An experiment: jobs that belong together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from attrs import define, evolve

from batchhvd.errors import ConflictError, SpecError
from batchhvd.resources import runs
from batchhvd.resources.base import Operations, Resource, children
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.job import Job
from batchhvd.resources.storage_account import find_account
from batchhvd.resources.values.listing import Listing
from batchhvd.spec.job import JobSpec
from batchhvd.wire.facts.documents import Body
from batchhvd.wire.facts.job_variables import AFTER, EarlierJob
from batchhvd.wire.facts.job_variables import after as earlier

if TYPE_CHECKING:
    from typing_extensions import Self

    from batchhvd.advice.plan import Plan
    from batchhvd.advice.scaling.judgement import ScaleAdvice
    from batchhvd.resources.function_future import FunctionFuture
    from batchhvd.resources.group import ResourceGroup
    from batchhvd.resources.sweep import Sweep
    from batchhvd.resources.values.comparison import Comparison
    from batchhvd.resources.workspace import Workspace
    from batchhvd.sweeps import Search, Space, Stopping
    from batchhvd.wire.waiting import Report


V = TypeVar("V")

_READERS = 8  # logs that are read at the same time
_TRIES = 5  # to find a number that no other program takes


@define(eq=False, repr=False, slots=False)
class Experiment(Resource):
    """An experiment: jobs that belong together."""

    kind: ClassVar[str] = "experiment"
    _plural: ClassVar[str] = "experiments"
    _segment: ClassVar[str] = "/experiments"
    _operations: ClassVar[Operations] = Operations("batchai", "experiments", "list_by_workspace")
    _kinds: ClassVar[tuple[type[Resource], ...]] = (Job,)

    @property
    def workspace(self) -> Workspace:
        """The workspace that it belongs to."""
        return cast("Workspace", self._parent)

    @property
    def group(self) -> ResourceGroup:
        """The resource group that it belongs to."""
        return self.workspace.group

    def create_job(
        self,
        name: str | None,
        spec: JobSpec,
        *,
        cluster: Cluster,
        rerun: bool = False,
        replace: bool = False,
        after: Iterable[Job | str] = (),
        after_ended: Iterable[Job | str] = (),
        timeout: float = 600.0,
    ) -> Job:
        """Submits a job; it waits in the queue until nodes are free.

        A job of this name that has ended is not started again unless ``rerun`` or ``replace`` says so. One that has not
        ended is returned, with a warning, if it has the same specification and its files have not changed.

        The keys of the storage accounts that it mounts are looked up and sent along; the spec does not keep them. The
        checksums of its script and of other uploaded files that its command lines name are kept in ``spec.content``.
        The spec's ``code`` and ``requirements`` are uploaded to the share ``runs`` of the group, equal content once. On
        the nodes, ``$AZ_BATCHAI_INPUT_CODE`` is the folder.

        Args:
            name: its name; None for the experiment's with the next number, such as ``cifar-0007``.
            spec: what the job consists of.
            cluster: where it runs.
            rerun: if a job of this name exists, keep it and run this one under the next number: ``cifar-0002`` after
                ``cifar``.
            replace: if a job of this name exists, delete it first; its ranks end, the files it wrote stay.
            after: jobs of this experiment that must succeed first; if one fails, this one fails with its name.
            after_ended: jobs of this experiment that must end first, however that is.
            timeout: seconds to wait for the service to accept it; ``Job.wait`` waits for the job.

        Raises:
            NotFoundError: a storage account that it mounts does not exist.
            ConflictError: a job of this name exists and has ended, or has other content.
            BadRequestError: the service rejected the job; ``target`` names the field.
            SpecError: both ``rerun`` and ``replace`` are given, or a job of another experiment must come first.
        """
        from batchhvd.resources import quick_run

        if rerun and replace:
            raise SpecError("a job is either kept or replaced", remedy="give rerun or replace, not both")
        spec = self._ordered(quick_run.placed(self.group, spec), after, after_ended)
        accounts = {account: find_account(self.group, account) for account in spec._accounts()}
        files = runs.content(spec, accounts)
        body = spec._request(cluster.id, {account: found.read_key() for account, found in accounts.items()})
        if name is not None:
            job = Job(self, name)
            exists = job.exists()
            if exists and replace:
                job.delete(timeout=timeout)
            if not exists or replace:
                return job._create(runs.noted(body, runs.notes(files)), timeout)
            if not rerun:
                return job._repeat(evolve(spec, content=files), body, timeout)
        # Equal requests of two programs would be one job to the service.
        return self._create_next(name or self.name, runs.noted(body, runs.notes(files, unique=True)), timeout)

    def next_name(self, name: str) -> str:
        """Returns the name that the next run of a job would have: ``cifar-0002`` after ``cifar``."""
        return runs.next_name(name, (job.name for job in self.jobs()))

    def plan_job(self, name: str, spec: JobSpec, *, cluster: Cluster) -> Plan:
        """Says what a job would do and what would make it fail, without creating it.

        A service of batchhvd checks the job as if it were created, and reports what it would reject. Other services
        cannot do so without creating the job; the plan then has ``checked`` False and a warning. The spec's ``code`` is
        uploaded for it.

        Args:
            name: the name it would have.
            spec: what the job consists of.
            cluster: where it would run.
        """
        from batchhvd.advice import plan  # late: most programs never ask
        from batchhvd.resources import quick_run
        from batchhvd.resources.survey import Survey

        return plan.make(quick_run.placed(self.group, spec), name, Survey(self, cluster))

    def submit(
        self,
        function: Callable[..., V],
        *args: object,
        nodes: int = 1,
        cluster: Cluster | None = None,
        code: str | os.PathLike[str] | None = None,
        preparation: str = "",
        environment: str | os.PathLike[str] | None = None,
        name: str | None = None,
        **arguments: object,
    ) -> FunctionFuture[V]:
        """Runs a Python function on some nodes, one rank on each, and returns a future without waiting for it.

        The function and its arguments are pickled with cloudpickle; so are the modules of your program that it uses, if
        no package has them. What it returns is pickled too. Both travel through the share ``runs`` of the group, which
        is made if it is missing. A function whose Python or packages have another minor version on the node is refused.

        Args:
            function: the function; each rank calls it with the same arguments.
            *args: its arguments.
            nodes: how many nodes.
            cluster: where it runs; None for the workspace's cluster ``nodes``, which is made or grows if needed.
            code: a folder whose modules the function imports. It is uploaded as ``Session.run`` does; its modules
                are then not pickled.
            preparation: a shell command line that runs on each node before.
            environment: a file of requirements for a virtual environment, as for ``Session.run``.
            name: the job's name (a later run of it gets the next number); None for the experiment's with a number.
            **arguments: its arguments by name. One called like an argument of this method is given by
                ``functools.partial``.

        Raises:
            SpecError: the function cannot be called so, or something in it cannot be pickled.
        """
        from batchhvd.resources import function_future

        return function_future.submit(
            self,
            function,
            args,
            arguments,
            nodes=nodes,
            cluster=cluster,
            code=code,
            preparation=preparation,
            environment=environment,
            name=name,
        )

    def future(self, name: str) -> FunctionFuture[object]:
        """Returns the future of a function that was submitted earlier, by its job's name; nothing is sent."""
        from batchhvd.resources.function_future import FunctionFuture

        return FunctionFuture(self.job(name))

    def job(self, name: str) -> Job:
        """Returns a handle to a job without sending a request."""
        return Job(self, name)

    def jobs(self) -> Listing[Job]:
        """Lists the experiment's jobs."""
        return children(Job, self)

    def sweep(
        self,
        name: str,
        spec: JobSpec,
        space: Space | Search,
        *,
        cluster: Cluster,
        at_once: int | None = None,
        stop: Stopping | None = None,
    ) -> Sweep:
        """Makes a sweep: one job for each point of a space. ``run()`` submits the jobs.

        A sweep of this name that has the same definition is returned, and goes on where it was.

        Args:
            name: its name; its jobs are called ``name_0001`` and so on.
            spec: the job, with ``{rate}`` where the value of ``rate`` goes.
            space: the points, such as ``sweeps.grid(rate=[0.1, 0.01])``, or a search such as ``sweeps.optuna(20, …)``.
            cluster: where the jobs run.
            at_once: how many jobs wait or run at the same time; None for all. The queue starts what fits.
            stop: the rule by which trials are given up, such as ``sweeps.asha("val_accuracy")``.

        Raises:
            ConflictError: there is a sweep of this name with another definition, or some of its trials ran other files.
            SpecError: the spec has a place that no name of the space stands for, or its logs lie on no share.
        """
        from batchhvd import sweeps
        from batchhvd.resources import quick_run, sweep_search
        from batchhvd.resources.sweep_record import Definition

        search = space if isinstance(space, sweeps.Search) else None
        spec = quick_run.placed(self.group, spec)
        made = Definition(spec, space.points, space.text, cluster.name, at_once, stop, search)
        return sweep_search.make(self, name, made)

    def scale(
        self,
        spec: JobSpec,
        *,
        cluster: Cluster,
        ranks: Sequence[int] = (1, 2, 4, 8),
        name: str = "",
        seconds: float = 20.0,
        precision: float = 0.03,
        report: Report | None = None,
    ) -> ScaleAdvice:
        """Measures a training on several numbers of ranks, one on each node, and says how many pay.

        Each is a job of its own, one after another, that ends as soon as its steps are measured. The script trains with
        ``model.fit`` after ``hvd.init()``; its validation and its own callbacks are left out. Printing the result shows
        a table, a picture and the advice.

        Args:
            spec: the training, a Horovod task; its number of nodes is replaced.
            cluster: where the jobs run.
            ranks: the numbers of ranks; one is always measured. More than the cluster has nodes are left out, and
                named in a warning.
            name: the jobs' name, before ``-scale-N``; "" for the experiment's.
            seconds: the most that one measurement takes, after the warm-up.
            precision: half the width of the 95 % interval of a step's time, divided by it, that is enough.
            report: is called with a line for each measurement.

        Raises:
            JobFailedError: a measured run failed; its log says why.
            SpecError: the task is not Horovod's, or its logs are on no share.
        """
        from batchhvd.resources.studies import scaling

        how = scaling.Measuring(scaling.possible(cluster, ranks), name or self.name, seconds, precision)
        return scaling.scale(self, spec, cluster, how, report)

    def compare(self, *names: str, metric: str = "") -> Comparison:
        """Returns jobs side by side: what they tried, their metrics, their rate.

        Args:
            names: the jobs' names; none for all of the experiment.
            metric: the metric to compare by; "" for the first that there is of val_accuracy, accuracy, val_loss, loss.

        Raises:
            NotFoundError: there is no job of a name.
            SpecError: no job has reported the metric.
        """
        from batchhvd.resources.values import comparison
        from batchhvd.resources.values.compared_job import ComparedJob

        jobs = [Job(self, name).refresh() for name in names] or sorted(self.jobs(), key=lambda job: job.name)
        with ThreadPoolExecutor(_READERS, "batchhvd compare") as pool:
            read = pool.map(lambda job: ComparedJob.of(job, job.metrics()), jobs)
            return comparison.compare(list(read), metric)

    def table(self, metric: str = "") -> Any:
        """Returns all jobs side by side as a pandas DataFrame, or as a list of rows where there is no pandas.

        Raises:
            SpecError: no job has reported the metric.
        """
        found = self.compare(metric=metric)
        return found.to_dataframe() if find_spec("pandas") else list(found)

    def open_sweep(self, name: str) -> Sweep:
        """Returns a sweep that was made before, perhaps by another process.

        Raises:
            NotFoundError: no job of this experiment belongs to such a sweep.
        """
        from batchhvd.resources import sweep_search

        return sweep_search.reopen(self, name)

    def _ordered(self, spec: JobSpec, after: Iterable[Job | str], after_ended: Iterable[Job | str]) -> JobSpec:
        """Returns a spec with the variable that names the jobs that must come first."""
        goals = [(job, False) for job in after] + [(job, True) for job in after_ended]
        for job, _ in goals:
            if isinstance(job, Job) and job.experiment.id.lower() != self.id.lower():
                problem = f"job {job.name!r} is in another experiment, {job.experiment.name!r}"
                raise SpecError(problem, remedy="let it be a job of this one, or wait for it with wait()")
        named = [EarlierJob(job if isinstance(job, str) else job.name, may_fail) for job, may_fail in goals]
        return evolve(spec, environment={**spec.environment, AFTER: earlier(named)}) if named else spec

    def _create_next(self, name: str, body: Body, timeout: float) -> Job:
        """Creates a run under the next number; another program may take that number at the same moment."""
        for _ in range(_TRIES - 1):
            with suppress(ConflictError):
                return Job(self, self.next_name(name))._create(body, timeout)
        return Job(self, self.next_name(name))._create(body, timeout)

    def _create(self, timeout: float) -> Self:
        return self._created(lambda: self._connection.batchai.experiments.begin_create(*self._path), timeout)
