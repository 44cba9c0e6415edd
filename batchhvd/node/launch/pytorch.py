"""The variables of PyTorch's ranks: those of ``torchrun`` and those of Batch AI."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def place_variables(node: int, local: int, ranks: Sequence[int]) -> dict[str, str]:
    """Returns the variables that tell a rank its place.

    Source: torch/distributed/elastic/agent/server/local_elastic_agent.py of PyTorch 2.13. Those of its agent
    (TORCHELASTIC_…) are left out: a rank that finds them expects the agent's own store.

    Args:
        node: the node's number, from 0; the nodes get blocks of successive ranks.
        local: the rank's number on its node, from 0.
        ranks: how many ranks each node has.
    """
    rank = sum(ranks[:node]) + local
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(sum(ranks)),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(ranks[node]),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(len(ranks)),
        "AZ_BATCHAI_TASK_INDEX": str(rank),
    }


def meeting_variables(
    address: str, port: int, interface: str, own: Mapping[str, str], file: Path | None
) -> dict[str, str]:
    """Returns the variables that tell the ranks of a node where all ranks meet.

    Args:
        address: the address of the first rank, as seen from this node.
        port: the port on which the first rank will listen.
        interface: the network interface through which this node's ranks reach the others, "" if that is not known.
        own: the job's own variables, which win.
        file: a path that all nodes share, for ranks that meet by a file; None if they meet at the address.
    """
    found = {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "AZ_BATCHAI_PYTORCH_INIT_METHOD": f"tcp://{address}:{port}" if file is None else f"file://{file}",
    }
    if interface:  # by default each rank looks up the name of its machine, which need not lead to the others
        found |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return {name: own.get(name, value) for name, value in found.items()}


def meets_by_file(own: Mapping[str, str], folder: Path) -> bool:
    """Whether the init method is a shared file: for Gloo, as published, unless PyTorch could not read the path."""
    return own.get("AZ_BATCHAI_PYTORCH_BACKEND") == "gloo" and not set("?#%") & set(str(folder))
