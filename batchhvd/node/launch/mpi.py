"""Open MPI's launcher: where it is, what it needs, and its command line."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from shutil import which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ABSENT = (
    "there is no mpirun on this node: pip install 'batchhvd[mpi]' into the service's environment, "
    "or apt-get install openmpi-bin"
)
# The hierarchical collectives of Open MPI (coll/han) take ranks of one host name for ranks of one node. They hang if a
# script's own mpirun has started the ranks by ssh on several nodes of one machine.
ON_ONE_MACHINE = {"OMPI_MCA_coll": "^han"}
"""The variables that ranks of MPI need if all nodes are one machine."""
# Each launcher says by its own variable which rank a process is; Batch AI promises AZ_BATCHAI_TASK_INDEX.
_INDEX = "${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}}"


def command(line: str, ranks: int, hostfile: Path, names: Iterable[str], launcher: str | None) -> str:
    """Returns the command line that starts a command on every rank.

    Args:
        line: the command line of a rank.
        ranks: how many there are.
        hostfile: the path of the file that names the hosts.
        names: the variables that ranks on other hosts need too.
        launcher: the engine's own launcher, or None for Open MPI's.
    """
    rank = shlex.join(["/bin/sh", "-c", f'export AZ_BATCHAI_TASK_INDEX="{_INDEX}"; {line}'])
    if launcher:
        return f"{launcher} {rank}"
    words = ["mpirun", "-np", str(ranks), "--hostfile", str(hostfile)]
    words += ["--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    for name in dict.fromkeys(names):
        words += ["-x", name]
    return f"{shlex.join(words)} {rank}"


def is_there(path: str, root: Path | None) -> bool:
    """Whether there is a launcher.

    Args:
        path: the search path for programs.
        root: what a preparation has changed lies below it; None if there was none.
    """
    return which("mpirun", path=path) is not None or any(
        Path(f"{root}{folder}/mpirun").exists() for folder in path.split(":") if root is not None
    )


def libraries(path: str) -> dict[str, str]:
    """Returns the variables that programs of MPI need if Open MPI was installed by pip, its libraries beside it.

    Args:
        path: the search path for programs.
    """
    found = which("mpirun", path=path)
    folder = Path(found).parent.parent / "lib" if found else None
    if folder is None or not (folder / "openmpi" / "libprrte.so.3").exists():
        return {}  # one of the system's finds its own
    before = os.environ.get("LD_LIBRARY_PATH", "")
    return {"LD_LIBRARY_PATH": f"{folder}:{before}".rstrip(":")}
