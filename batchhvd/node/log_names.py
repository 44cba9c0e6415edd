"""The names of a task's logs. Source: those that Batch AI gave, in the recordings of azure-mgmt-batchai's tests."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from batchhvd.node.folder.document import TaskDocument


def execution(task: TaskDocument, index: int) -> str:
    """Returns the name of a node's execution log."""
    return f"execution{_node(task, index)}.log"


def preparation(task: TaskDocument, index: int, stream: str) -> str:
    """Returns the name of the log of a node's preparation.

    Args:
        task: the task.
        index: the node's number, from 0.
        stream: ``"stdout"`` or ``"stderr"``.
    """
    kind = "" if task.get("setup") else "-job_prep"
    return f"{stream}{kind}{_node(task, index)}.txt"


def output(task: TaskDocument, index: int, stream: str) -> str:
    """Returns the name of the log of the ranks' output, which all nodes share; a setup has one log for all."""
    return preparation(task, index, stream) if task.get("setup") else f"{stream}.txt"


def _node(task: TaskDocument, index: int) -> str:
    """Returns what tells a node's logs from those of others: nothing for the only node of a job."""
    alone = len(task["nodes"]) == 1 and not task.get("setup")  # the nodes of a cluster share their setup's folder
    return "" if alone else f"-{task['nodes'][index]}"
