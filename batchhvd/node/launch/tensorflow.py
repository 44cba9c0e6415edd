"""The variables of TensorFlow's workers and parameter servers."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchhvd.node.folder.document import NodeRecord

CHIEF, WORKER, SERVER = "chief", "worker", "ps"


def role_variables(rank: int, roles: Sequence[str], hosts: Sequence[str]) -> dict[str, str]:
    """Returns the variables that tell a process of TensorFlow its task and those of the others.

    Batch AI counts the chief among the workers, as the first one. ``TF_CONFIG`` names it by itself, and by the word
    that TensorFlow 2 knows.

    Args:
        rank: the process's number, from 0.
        roles: what each process is.
        hosts: address and port of each process, as ``"10.0.0.4:2222"``.
    """
    workers = [host for host, role in zip(hosts, roles, strict=True) if role != SERVER]
    servers = [host for host, role in zip(hosts, roles, strict=True) if role == SERVER]
    own, before = roles[rank], roles[:rank]
    index = before.count(SERVER) if own == SERVER else len(before) - before.count(SERVER)
    cluster = {CHIEF: workers[:1], WORKER: workers[1:], SERVER: servers}
    task = {"type": own, "index": index - 1 if own == WORKER else index}
    config = {"cluster": {name: found for name, found in cluster.items() if found}, "task": task}
    return {
        "AZ_BATCHAI_WORKER_HOSTS": ",".join(workers),
        "AZ_BATCHAI_PS_HOSTS": ",".join(servers),
        "AZ_BATCHAI_TASK_INDEX": str(index),
        "TF_CONFIG": json.dumps(config),
    }


def work_is_done(roles: Sequence[str], records: Sequence[NodeRecord | None]) -> bool:
    """Whether all processes but the parameter servers have ended."""
    begun = [rank for record in records if record is not None for rank in record["ranks"]]
    ended = {rank["rank"] for rank in begun if rank["exit"] is not None}
    return all(rank in ended for rank, role in enumerate(roles) if role != SERVER)
