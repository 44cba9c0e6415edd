"""Makes true what the requests ask for: clusters get their nodes, jobs run and end, what is to be deleted goes.

Nothing is kept in memory that the store does not hold: after a kill at any moment a fresh scheduler goes on. A start
has three steps: nodes and folder are reserved; the engine starts the task; the handle is kept. Killed between the
second and the third, the next tick submits the same folder again, and the engine returns the run that is there.
"""

from __future__ import annotations

import copy
import logging
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attrs import evolve

from batchhvd.engines.base import ENDED, Engine, Status
from batchhvd.errors import BatchHvdError
from batchhvd.service.mounts import links as mounting
from batchhvd.service.mounts.links import MountError
from batchhvd.service.scheduler import layout, manifest, outcome, queue, removal
from batchhvd.service.scheduler import nodes as cluster_life
from batchhvd.service.scheduler import task as environment
from batchhvd.service.scheduler.nodes import Use, Wish
from batchhvd.service.scheduler.setup_task import Setups
from batchhvd.service.scheduler.task import Attempt, ScriptMissingError, Site
from batchhvd.service.store.records import Record, Store
from batchhvd.wire.facts.times import read_moment, write_moment

log = logging.getLogger("batchhvd.service.scheduler.tick")
Document = dict[str, Any]
Change = Callable[[Document, Document], None]
_EVICTIONS = 1000  # how often a job of a low-priority cluster is started again where it does not say


class Scheduler:
    """Moves everything one step with each ``tick()``; one thread calls it.

    Attributes:
        active: whether anything was still moving at the end of the last tick.
    """

    def __init__(
        self,
        store: Store,
        root: Path,
        engine: Engine,
        clock: Callable[[], float] = time.time,
        *,
        site: Site | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._store, self._root, self._engine, self._clock = store, root, engine, clock
        self._site = site or Site(python=sys.executable, layers=str(root / "layers"))
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="seal")
        self._sealing: dict[str, Future[None]] = {}
        self._setups = Setups(store, root, engine, self._site)
        self.active = False

    def tick(self) -> None:
        """Moves everything one step."""
        now = self._clock()
        jobs = {job.id.lower(): job for job in self._store.active()}
        clusters = {cluster.id.lower(): cluster for cluster in self._store.list("clusters")}
        self._follow(jobs, clusters, now)
        for cluster in list(clusters.values()):
            try:
                self._move(cluster, jobs, clusters, now)
            except Exception:  # whatever is wrong with one cluster must not stop the others
                log.exception("cluster %s could not be moved; the next tick tries again", cluster.id)
        doomed = removal.run(self._store, self._root)
        resizing = any(c.document["properties"]["allocationState"] != "steady" for c in clusters.values())
        self.active = bool(jobs) or resizing or doomed

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _follow(self, jobs: dict[str, Record], clusters: Mapping[str, Record], now: float) -> None:
        handles = {key: job.private["handle"] for key, job in jobs.items() if job.private.get("handle")}
        statuses = self._engine.status(list(handles.values())) if handles else {}
        for key, job in list(jobs.items()):
            cluster = clusters.get(job.document["properties"]["cluster"]["id"].lower())
            status = statuses.get(handles.get(key, ""))
            try:
                changed = self._follow_one(job, cluster, status, now) if status else self._unbegun(job, cluster, now)
                _replace(jobs, key, changed)
            except (BatchHvdError, MountError, OSError):
                log.exception("job %s could not be followed; the next tick tries again", job.id)

    def _unbegun(self, job: Record, cluster: Record | None, now: float) -> Record:
        """Ends a job that waits where its end is wished; its nodes, if it was given any, may have begun."""
        ending = _ending(job, cluster)
        if not ending:
            return job
        if job.private.get("nodes") and cluster:  # killed while it was being submitted: find the run, then end it
            return self._submit(job, cluster, now)
        return self._fail(job, _ended_by(ending, job), now)

    def _follow_one(self, job: Record, cluster: Record | None, status: Status, now: float) -> Record:
        ending = _ending(job, cluster)
        if status.state not in ENDED:
            if ending:
                self._engine.cancel(job.private["handle"])
            return self._note(job, status, now)
        if status.state == "succeeded":
            return self._seal(job, cluster, status, now)
        return self._ended_badly(job, cluster, status, ending, now)

    def _note(self, job: Record, status: Status, now: float) -> Record:
        """Keeps what the engine says of a run that has not ended: that it waits there and why, or when it began."""

        def change(document: Document, private: Document) -> None:
            if document["properties"]["executionState"] in ("queued", "running"):
                _show(document, private, status, now)

        properties = job.document["properties"]
        moved = _held(status) or properties["executionState"] == "queued"
        begun = status.started is not None and "startTime" not in properties.get("executionInfo", {})
        return self._change(job, change) if moved or begun else job

    def _seal(self, job: Record, cluster: Record | None, status: Status, now: float) -> Record:
        """Seals the outputs in the background; the job has succeeded when that is done."""
        future = self._sealing.get(job.id)
        try:
            if future is None:
                directories = self._segments(job, cluster)
                future = self._executor.submit(manifest.seal, directories, job.id, write_moment(now))
                self._sealing[job.id] = future
            if not future.done():
                return job
            future.result()
        except (MountError, OSError) as error:
            self._sealing.pop(job.id, None)
            lost = outcome.plain("EngineFailed", f"The job ended well, but its outputs could not be sealed: {error}")
            return self._finish(job, "failed", status, lost, now)
        del self._sealing[job.id]
        return self._finish(job, "succeeded", status, None, now)

    def _segments(self, job: Record, cluster: Record | None) -> list[Path]:
        if cluster is None:
            return []
        found = self._targets(job, cluster)
        return environment.segments(job.document["properties"], found)

    def _ended_badly(self, job: Record, cluster: Record | None, status: Status, ending: str, now: float) -> Record:
        attempt = job.private["attempt"] + status.attempt - 1  # the engine may have started it again by itself
        error = outcome.error(status, attempt=attempt, path=environment.script_of(job.document["properties"]))
        if status.reason == "node":
            self._node_lost(cluster, status.node)
        if ending == "requeue":
            return self._requeue(
                job, outcome.plain("NodeLost", "Its nodes left the cluster.", Attempt=str(attempt)), now
            )
        if ending:
            return self._finish(job, "failed", status, _ended_by(ending, job), now)
        if _may_retry(job, cluster, status):
            return self._requeue(job, error, now)
        return self._finish(job, "failed", status, error, now)

    def _node_lost(self, cluster: Record | None, node: str) -> None:
        if cluster is not None and node:
            self._store.update(cluster.id, lambda document, private: cluster_life.lost(document, private, node))

    def _requeue(self, job: Record, error: Document, now: float) -> Record:
        def change(document: Document, private: Document) -> None:
            private.setdefault("history", []).append({"attempt": private["attempt"], "ended": now, "error": error})
            private.update(nodes=[], queued=now, ending="")
            private.pop("handle", None)
            _state(document, "queued", now)
            document["properties"]["executionInfo"] = {"errors": [_waiting("It starts again.", private)]}

        log.info("job %s goes back into the queue: %s", job.id, error["message"])
        return self._change(job, change)

    def _finish(self, job: Record, state: str, status: Status, error: Document | None, now: float) -> Record:
        def change(document: Document, private: Document) -> None:
            info = _info(document)
            info.pop("errors", None)
            info.setdefault("startTime", write_moment(status.started or now))
            info["endTime"] = write_moment(status.ended or now)
            if status.exit_code is not None:
                info["exitCode"] = status.exit_code
            if error is not None:
                info["errors"] = [error, *(entry["error"] for entry in private.get("history", ()))]
            _state(document, state, now)

        shutil.rmtree(Path(job.private["folder"], "temp"), ignore_errors=True)
        log.info("job %s %s", job.id, state)
        return self._change(job, change)

    def _fail(self, job: Record, error: Document, now: float) -> Record:
        """Ends a job that has no run."""

        def change(document: Document, private: Document) -> None:
            document["properties"]["executionInfo"] = {"endTime": write_moment(now), "errors": [error]}
            private["nodes"] = []
            _state(document, "failed", now)

        log.info("job %s failed: %s", job.id, error["message"])
        return self._change(job, change)

    # -- clusters ------------------------------------------------------------------------------------------------------

    def _move(self, cluster: Record, jobs: dict[str, Record], clusters: dict[str, Record], now: float) -> None:
        mine = {key: job for key, job in jobs.items() if _of(job, cluster)}
        cluster = self._setups.follow(cluster, now)
        cluster, wishes = self._step(cluster, mine, now)
        for wish in wishes:
            _replace(jobs, wish.id.lower(), self._wish(jobs[wish.id.lower()], wish))
        if self._place(cluster, mine, now):
            for key in mine:
                _replace(jobs, key, self._store.get(key) or mine[key])
            cluster, _ = self._step(cluster, {key: jobs[key] for key in mine if key in jobs}, now)
        clusters[cluster.id.lower()] = cluster

    def _step(self, cluster: Record, jobs: Mapping[str, Record], now: float) -> tuple[Record, list[Wish]]:
        """Moves a cluster's nodes; writes only where something changed."""
        if cluster.document["properties"]["provisioningState"] == "deleting" and not jobs:
            return cluster, []
        uses = [_use(job) for job in jobs.values()]
        wishes: list[Wish] = []

        def change(document: Document, private: Document) -> None:
            wishes[:] = cluster_life.advance(document, private, uses, now, self._engine.nodes(), self._broken())

        return self._change(cluster, change), wishes

    def _broken(self) -> Mapping[str, str]:
        """Returns the engine's machines that take no tasks, where it has machines, and why."""
        states: Mapping[str, str] = getattr(self._engine, "node_states", dict)()
        return states

    def _wish(self, job: Record, wish: Wish) -> Record:
        if job.private.get("ending"):
            return job
        return self._change(job, lambda _, private: private.update(ending=wish.action))

    def _place(self, cluster: Record, jobs: Mapping[str, Record], now: float) -> bool:
        """Starts the jobs whose turn it is, tells the others why they wait, and says whether any started."""
        waiting = {key: job for key, job in jobs.items() if _waits(job) and not _ending(job, cluster)}
        begun = [job for job in waiting.values() if job.private.get("nodes")]
        for job in begun:  # killed while it was being submitted
            self._start(job, cluster, now)
        busy = {name for job in jobs.values() for name in job.private.get("nodes", ())}
        entries = [_entry(job) for job in waiting.values() if not job.private.get("nodes")]
        size = int(cluster.private.get("target", 0))
        decision = queue.decide(entries, cluster_life.free(cluster.private, busy), size, now)
        for id, nodes in decision.starts:
            self._start(self._reserve(jobs[id], nodes), cluster, now)
        for id, reason in decision.reasons.items():
            self._explain(jobs[id], reason)
        return bool(begun or decision.starts)

    def _explain(self, job: Record, reason: str) -> None:
        errors = [_waiting(f"The job {reason}.", job.private)]
        if job.document["properties"].get("executionInfo", {}).get("errors") != errors:
            self._change(job, lambda document, _: _info(document).update(errors=errors))

    def _reserve(self, job: Record, nodes: tuple[str, ...]) -> Record:
        def change(document: Document, private: Document) -> None:
            private["attempt"] = private.get("attempt", 0) + 1
            folder = self._root / "tasks" / private["uuid"] / str(private["attempt"])
            private.update(nodes=list(nodes), folder=str(folder))

        return self._change(job, change)

    def _start(self, job: Record, cluster: Record, now: float) -> None:
        try:
            self._submit(job, cluster, now)
        except MountError as error:
            self._fail(job, outcome.plain("MountFailed", str(error), Path=error.path), now)
        except ScriptMissingError as error:
            self._fail(job, outcome.plain("ScriptNotFound", str(error), Path=error.path), now)
        except (BatchHvdError, OSError, ValueError) as error:
            log.exception("job %s did not start", job.id)
            self._fail(job, outcome.plain("EngineFailed", f"{error}."), now)

    def _submit(self, job: Record, cluster: Record, now: float) -> Record:
        found = self._targets(job, cluster)
        environment.check_script(job, found)
        run = Attempt(Path(job.private["folder"]), tuple(job.private["nodes"]), job.private["attempt"])
        plan = environment.build(job, cluster, found, run, self._site)
        layout.lay(plan)
        layout.begin_logs(Path(plan.task.logs))
        handle = self._engine.submit(plan.task)
        status = evolve(self._engine.status([handle])[handle], started=now)

        def change(document: Document, private: Document) -> None:
            private["handle"] = handle
            _info(document).pop("errors", None)
            if document["properties"]["executionState"] == "queued":  # it may be terminating by now
                _show(document, private, status, now)

        log.info("job %s runs on %s", job.id, ", ".join(run.nodes))
        return self._change(job, change)

    def _targets(self, job: Record, cluster: Record) -> mounting.Targets:
        keys = {**cluster.private.get("keys", {}), **job.private.get("keys", {})}
        mounted = environment.mounts_of(job, cluster)
        return mounting.targets(self._store, self._root, mounted, keys, self._site.directories)

    def _change(self, record: Record, change: Change) -> Record:
        """Alters a resource and returns it as it is now; nothing is written where nothing changes."""
        document, private = copy.deepcopy(record.document), copy.deepcopy(record.private)
        change(document, private)
        if (document, private) == (record.document, record.private):
            return record
        return self._store.update(record.id, change) or record


def _replace(jobs: dict[str, Record], key: str, job: Record) -> None:
    """Keeps the new state of a job, or forgets one that has ended."""
    if job.document["properties"]["executionState"] in ("succeeded", "failed"):
        jobs.pop(key, None)
    else:
        jobs[key] = job


def _of(job: Record, cluster: Record) -> bool:
    return bool(job.document["properties"]["cluster"]["id"].lower() == cluster.id.lower())


def _waits(job: Record) -> bool:
    return job.document["properties"]["executionState"] == "queued" and not job.private.get("handle")


def _use(job: Record) -> Use:
    needs = int(job.document["properties"]["nodeCount"])
    return Use(job.id, job.number, needs, tuple(job.private.get("nodes", ())))


def _entry(job: Record) -> queue.Waiting:
    properties = job.document["properties"]
    priority, nodes = properties.get("schedulingPriority", "normal"), int(properties["nodeCount"])
    since = job.private.get("queued") or read_moment(properties["creationTime"]).timestamp()
    return queue.Waiting(job.id.lower(), job.document["name"], job.number, priority, nodes, since)


def _ending(job: Record, cluster: Record | None) -> str:
    """Returns why a job has to end although it did not by itself, "" where it need not."""
    properties = job.document["properties"]
    if properties["provisioningState"] == "deleting":
        return "delete"
    if properties["executionState"] == "terminating":
        return "terminating"
    if cluster is None or cluster.document["properties"]["provisioningState"] == "deleting":
        return "cluster"
    return str(job.private.get("ending") or "")


def _ended_by(ending: str, job: Record) -> Document:
    text = {
        "delete": "The job was deleted.",
        "terminating": "The job was terminated on request.",
        "cluster": "The job's cluster was deleted.",
        "terminate": "The job was terminated because its nodes left the cluster.",
    }[ending]
    return outcome.plain("JobTerminated", text, Attempt=str(job.private.get("attempt", 0)))


def _may_retry(job: Record, cluster: Record | None, status: Status) -> bool:
    """Says whether a run that failed is started again: an eviction always, else as often as the job allows."""
    if status.reason not in ("node", "rank") and status.state != "lost":
        return False
    asked = environment.retries(job.document["properties"])
    low = cluster is not None and cluster.document["properties"].get("vmPriority") == "lowpriority"
    evicted = low and (status.reason == "node" or status.state == "lost")
    allowed = asked if asked is not None else _EVICTIONS if evicted else 0
    return len(job.private.get("history", ())) < allowed


def _waiting(reason: str, private: Document) -> Document:
    history = private.get("history", ())
    before = f" Attempt {history[-1]['attempt']} ended: {history[-1]['error']['message']}" if history else ""
    return outcome.plain("Waiting", reason + before)


def _held(status: Status) -> bool:
    """Whether a run waits in a queue of the engine's own."""
    return status.state == "queued" and bool(status.reason)


def _show(document: Document, private: Document, status: Status, now: float) -> None:
    """Shows a run that has not ended: as queued with the reason, or as running since when."""
    info, held = _info(document), _held(status)
    if held:
        info["errors"] = [_waiting(f"{status.reason[:1].upper()}{status.reason[1:]}.", private)]
    elif document["properties"]["executionState"] == "queued":
        info.pop("errors", None)
    if not held and status.started is not None:
        info.setdefault("startTime", write_moment(status.started))
    if document["properties"]["executionState"] != ("queued" if held else "running"):
        _state(document, "queued" if held else "running", now)


def _info(document: Document) -> Document:
    info: Document = document["properties"].setdefault("executionInfo", {})
    return info


def _state(document: Document, state: str, now: float) -> None:
    document["properties"].update(executionState=state, executionStateTransitionTime=write_moment(now))
