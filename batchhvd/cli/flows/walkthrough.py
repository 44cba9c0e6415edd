"""Runs the whole Batch AI and Horovod tutorial on this machine.

It is written as a user would write it: with the public names only, step by step.
"""

from __future__ import annotations

import difflib
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from attrs import define, field, frozen
from rich.console import Console
from rich.markup import escape

import batchhvd
from batchhvd import FileShare, Horovod, Job, JobSpec, ResourceGroup, Session
from batchhvd.cli.flows import checkup
from batchhvd.cli.frame.failure import described
from batchhvd.errors import BatchHvdError, JobFailedError, SpecError
from batchhvd.logs.progress import Progress
from batchhvd.views import terminal
from batchhvd.wire import local_service

SCRIPT = Path(__file__).parents[2] / "trainer" / "cifar_cnn_distributed.py"
MODEL = "keras_cifar10_trained_model.h5"
DATASETS = ("digits", "cifar10")  # as in trainer/data.py, which needs the trainer's packages
INTERRUPTED = 130  # the shell's code for Ctrl-C


@frozen(kw_only=True)
class TutorialOptions:
    """What to run.

    Attributes:
        root: the folder for the service, its shares and the downloaded model.
        engine: the engine that runs the job.
        engine_options: its options, or None for those of the settings.
        nodes: the number of nodes, each with one rank.
        dataset: ``"digits"``, ``"cifar10"`` or an .npz file.
        data: a folder with ``cifar-10-batches-py``, readable by the nodes, or None.
        epochs: passes over the data, or None for the trainer's own.
        script: the training script to upload.
        model: the file's name that the script writes to ``saved_models``, or "" if it writes none.
    """

    root: Path
    engine: str = "processes"
    engine_options: Mapping[str, str] | None = None
    nodes: int = 4
    dataset: str = "digits"
    data: Path | None = None
    epochs: int | None = None
    script: Path = SCRIPT
    model: str = MODEL


@define
class StepPrinter:
    """Prints each step and how long it took.

    Attributes:
        console: the console to print on.
        live: whether a step in progress is animated.
        seconds: how long each step took, by name.
    """

    console: Console
    live: bool = True
    clock: Callable[[], float] = time.monotonic
    seconds: dict[str, float] = field(factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[Callable[[object], None]]:
        """Times a step; the text passed to the yielded function is printed beside its name."""
        started, said = self.clock(), [""]

        def say(text: object) -> None:
            said[0] = str(text)

        try:
            with self.console.status(name) if self.live and self.console.is_terminal else nullcontext():
                yield say
        except BaseException:
            self._line("[red]✗[/red]", name, started, "")
            raise
        self.seconds[name] = self._line("[green]✓[/green]", name, started, said[0])

    def phases(self) -> str:
        """Returns the seconds by phase: before the training, the training, and after it."""
        names = list(self.seconds)
        middle = names.index("training")
        phases = {"set-up": names[:middle], "training": ["training"], "results": names[middle + 1 :]}
        return ", ".join(f"{phase} {sum(self.seconds[name] for name in part):.1f}" for phase, part in phases.items())

    def _line(self, mark: str, name: str, started: float, text: str) -> float:
        took = self.clock() - started
        self.console.print(f"{mark} {name:<16} [dim]{took:6.1f} s[/dim]  ", end="", highlight=False)
        self.console.print(text, markup=False, highlight=False, overflow="fold")
        return took


def run(options: TutorialOptions, console: Console, *, live: bool = True) -> int:
    """Runs the tutorial, shows each step, and leaves nothing running; returns 0 only if the job succeeded.

    Args:
        options: what to run.
        console: the console to print on.
        live: whether progress is animated.

    Raises:
        BatchHvdError: a step failed; a failed job is shown and does not raise.
    """
    root = options.root.expanduser().absolute()
    found = local_service.find(root)
    check(options, running=found is not None)
    console.print(f"[bold]Batch AI and Horovod:[/bold] {options.dataset} on {options.nodes} nodes", highlight=False)
    if found and found.engine != options.engine:
        problem = f"a service with engine {found.engine} runs in {root} (process {found.pid})"
        raise SpecError(problem, remedy=f"stop it with `batchhvd --root {root} serve --stop`, or give another --root")
    with ExitStack() as ending:
        try:
            return _tutorial(options, root, StepPrinter(console, live), live, ending)
        except KeyboardInterrupt:
            console.print("[yellow]Interrupted:[/yellow] the job was terminated; nothing is left running.")
            return INTERRUPTED
        finally:
            ending.enter_context(_uninterrupted())
            if found is None:
                local_service.stop(root)


def check(options: TutorialOptions, *, running: bool = False) -> None:
    """Refuses what cannot succeed, before anything is created.

    Args:
        options: what to run.
        running: whether a service runs already, with an engine that works.

    Raises:
        SpecError: an option is wrong.
        EngineMissingError: the programs of the engine are not installed.
        HorovodMissingError: this machine cannot train.
    """
    if not options.script.is_file():
        raise SpecError(f"the script {options.script} does not exist", remedy="give the path of a Python file")
    if options.data is not None and not options.data.is_dir():
        raise SpecError(
            f"the folder {options.data} does not exist", remedy="give the folder that holds cifar-10-batches-py"
        )
    checkup.refuse_engine(options.engine, running=running)
    if options.script == SCRIPT:
        _check_dataset(options.dataset)
        if options.engine == "processes":  # another engine's nodes have an environment of their own
            checkup.refuse_training(horovod=options.nodes > 1)


def _check_dataset(name: str) -> None:
    if name.endswith(".npz"):
        if not Path(name).is_file():
            raise SpecError(f"the file {name} does not exist", remedy="give a file that every node can read")
    elif name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SpecError(
            f"there is no data set {name!r}", remedy=f"give --dataset {' or '.join(DATASETS)}, or an .npz file{hint}"
        )


def _tutorial(options: TutorialOptions, root: Path, steps: StepPrinter, live: bool, ending: ExitStack) -> int:
    with steps("service") as say:
        session = batchhvd.local(root, engine=options.engine, engine_options=options.engine_options)
        _clear(session)
        say(f"{session.endpoint} with engine {options.engine}")
    group = session.group("batchai.horovod")
    try:
        return _in_group(options, root, session, steps, live)
    finally:
        ending.enter_context(_uninterrupted())
        with steps("clean-up") as say:
            _end(group)
            session.close()
            say("job, cluster, share and group are deleted")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignores a second Ctrl-C during the clean-up, which takes seconds, so that no ranks are left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _clear(session: Session) -> None:
    """Removes what a killed run left behind, so that the tutorial starts from nothing."""
    _end(session.group("batchai.horovod"))


def _end(group: ResourceGroup) -> None:
    """Terminates the job, if there is one, and deletes everything."""
    job = group.workspace("batchaidev").experiment("cifar").job("cifar_distributed")
    with suppress(BatchHvdError):  # deleting the group ends the job as well, and reports what is wrong
        if job.exists():
            job.terminate()
    if group.exists():
        group.delete()


def _in_group(options: TutorialOptions, root: Path, session: Session, steps: StepPrinter, live: bool) -> int:
    with steps("resource group") as say:
        group = session.create_group("batchai.horovod", location="eastus")
        say(f"{group.name} in {group.location}")
    with steps("workspace") as say:
        workspace = group.create_workspace("batchaidev")
        experiment = workspace.create_experiment("cifar")
        say(f"{workspace.name}, experiment {experiment.name}")
    with steps("cluster") as say:
        cluster = workspace.create_cluster("nc6cluster", vm_size="Standard_NC6", nodes=options.nodes)
        say(f"{cluster.name}, {cluster.vm_size}, {cluster.state}")
    with steps("storage") as say:
        share = group.create_storage_account("mystorageaccount").create_share("myshare")
        share.create_directory("cifar")
        say(f"share {share.name} in account {share.account.name}")
    with steps("upload") as say:
        say(f"{options.script.name}: {share.upload(options.script, to='cifar')}")
    with steps("nodes") as say:
        cluster.wait(timeout=900)
        say(f"{cluster.state}, {cluster.nodes}")
    with steps("job") as say:
        job = experiment.create_job("cifar_distributed", _spec(options, share), cluster=cluster)
        job.wait("running", timeout=600)
        say(f"{job.name} is {job.state} on {cluster.refresh().nodes.running} nodes")
    progress = _follow(job, options, steps, live)
    return _results(options, root, job, share, progress, steps)


def _spec(options: TutorialOptions, share: FileShare) -> JobSpec:
    mount = share.mount("myshare")
    args = [f"--dir={mount / 'cifar'}"]
    if options.script == SCRIPT:
        own = options.dataset.endswith(".npz")
        args += ["--dataset", shlex.quote(str(Path(options.dataset).absolute()) if own else options.dataset)]
        args += ["--data-dir", shlex.quote(str(options.data.absolute()))] if options.data else []
        args += ["--epochs", str(options.epochs)] if options.epochs else []
    task = Horovod(script=mount / f"cifar/{options.script.name}", args=" ".join(args))
    return JobSpec(nodes=options.nodes, task=task, mounts=[mount], logs=mount / "cifar")


def _follow(job: Job, options: TutorialOptions, steps: StepPrinter, live: bool) -> Progress:
    started = steps.clock()
    steps.console.rule("stdout.txt", style="dim")
    with terminal.Follower(steps.console, ranks=options.nodes, live=live) as follower:
        for text in job.stream("stdout.txt", report=follower.say):
            follower.write(text)
    steps.console.rule(style="dim")
    steps.seconds["training"] = steps.clock() - started
    return follower.progress.snapshot()


def _results(
    options: TutorialOptions, root: Path, job: Job, share: FileShare, progress: Progress, steps: StepPrinter
) -> int:
    try:
        job.wait(timeout=7200)
    except JobFailedError as error:
        steps.console.print(described(job, error), style="red", markup=False, highlight=False, soft_wrap=True)
        steps.console.print(f"Its logs are in {_keep_logs(job, root / 'logs')}", highlight=False, soft_wrap=True)
        return 1
    with steps("log files") as say:
        say(f"{sum(1 for _ in job.files())} files")
    model = root / options.model
    if options.model:
        with steps("download") as say:
            say(share.download(f"cifar/saved_models/{options.model}", to=root))
    with steps("resize") as say:
        group = share.group
        say(group.workspace("batchaidev").cluster("nc6cluster").resize(0).state + " to 0 nodes")
    _summary(options, progress, model if options.model else None, steps)
    return 0


def _keep_logs(job: Job, folder: Path) -> Path:
    """Saves the logs of a failed job before everything is deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in job.files():
        file.download(folder)
    return folder


def _summary(options: TutorialOptions, progress: Progress, model: Path | None, steps: StepPrinter) -> None:
    console, table = steps.console, progress.table()
    console.print()
    if table:
        console.print(terminal.epochs(table))
        console.print()
    facts = {}
    if "accuracy" in progress.test:
        facts["Test accuracy"] = f"[bold green]{progress.test['accuracy']:.4f}[/bold green]"
    rates = [row["images_per_second"] for row in table if "images_per_second" in row]
    if rates:
        facts["Images per second"] = f"{sum(rates) / len(rates):.0f} with {options.nodes} ranks"
    facts["Seconds"] = steps.phases()
    if model:
        facts["Model"] = escape(str(model))
    for name, text in facts.items():
        console.print(f"{name:<17}  {text}", highlight=False, soft_wrap=True)
    console.print()
