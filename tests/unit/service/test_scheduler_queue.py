"""Which waiting jobs start, and in which order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batchhvd.service.scheduler.queue import PATIENCE, Waiting, decide

NODES = tuple(f"n{k}" for k in range(8))


def job(number: int, nodes: int, priority: str = "normal", since: float = 0.0) -> Waiting:
    return Waiting(f"j{number}", f"job-{number}", number, priority, nodes, since)


def started(*jobs: Waiting, free: int = 8, size: int = 8, now: float = 1.0) -> list[str]:
    return [id for id, _ in decide(jobs, NODES[:free], size, now).starts]


def test_first_in_first_out() -> None:
    assert started(job(2, 1), job(1, 1), job(3, 1), free=2) == ["j1", "j2"]


def test_priority_comes_before_order() -> None:
    assert started(job(1, 1, "low"), job(2, 1), job(3, 1, "high"), free=2) == ["j3", "j2"]


def test_jobs_get_disjoint_nodes() -> None:
    starts = decide([job(1, 3), job(2, 4)], NODES, 8, 1.0).starts
    assert starts == (("j1", NODES[:3]), ("j2", NODES[3:7]))


def test_a_small_job_passes_a_large_one_for_a_while_only() -> None:
    large, small = job(1, 8, since=0.0), job(2, 1, since=PATIENCE - 1)
    assert started(large, small, free=4, now=PATIENCE - 1) == ["j2"]
    decision = decide([large, small], NODES[:4], 8, PATIENCE)
    assert decision.starts == ()
    assert decision.reasons["j1"] == "needs 8 nodes, of which 4 are free"
    assert decision.reasons["j2"] == "waits behind the job job-1, for which nodes are kept free"


def test_a_job_larger_than_the_cluster_holds_nobody_up() -> None:
    assert started(job(1, 9, since=-1e9), job(2, 1), now=1e9) == ["j2"]


def test_fifty_jobs_on_eight_nodes_start_in_order_and_none_waits_forever() -> None:
    """Plays time: job k takes k % 4 + 1 nodes for 10 to 50 seconds; nobody overtakes one that has lost its patience."""
    waiting = {f"j{k}": job(k, k % 4 + 1) for k in range(50)}
    running: dict[str, tuple[float, tuple[str, ...]]] = {}
    begun: list[tuple[float, int]] = []
    now = 0.0
    while waiting or running:
        running = {id: entry for id, entry in running.items() if entry[0] > now}
        used = [name for _, names in running.values() for name in names]
        assert len(used) == len(set(used)) <= 8
        for id, names in decide(list(waiting.values()), [n for n in NODES if n not in used], 8, now).starts:
            k = int(id[1:])
            running[id] = (now + 10 + k * 7 % 41, names)
            del waiting[id]
            begun.append((now, k))
        now += 1.0
    order = [number for _, number in begun]
    assert sorted(order) == list(range(50))
    assert order != sorted(order)  # within the patience smaller jobs do pass
    late = [number for at, number in begun if at >= PATIENCE]
    assert len(late) > 20
    assert late == sorted(late)  # and after it nobody does


sizes = st.lists(st.tuples(st.integers(1, 10), st.sampled_from(["low", "normal", "high"])), max_size=20)


@given(sizes, st.integers(0, 8), st.floats(0, 200))
def test_nodes_are_given_once_and_every_job_starts_or_is_told_why(
    wanted: list[tuple[int, str]], free: int, now: float
) -> None:
    jobs = [job(number, nodes, priority) for number, (nodes, priority) in enumerate(wanted)]
    decision = decide(jobs, NODES[:free], 8, now)
    given_nodes = [name for _, names in decision.starts for name in names]
    assert len(given_nodes) == len(set(given_nodes))
    assert set(given_nodes) <= set(NODES[:free])
    assert {id for id, _ in decision.starts} | set(decision.reasons) == {entry.id for entry in jobs}
    by_id = {entry.id: entry for entry in jobs}
    assert all(len(names) == by_id[id].nodes for id, names in decision.starts)
