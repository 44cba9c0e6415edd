"""Where ranks meet without Horovod: rank 0 opens a store and tells its port through the rendezvous of the job."""

from __future__ import annotations

import itertools
import os
import socket
import time
import urllib.error
import urllib.request
from datetime import timedelta

import torch.distributed as dist

from batchhvd.errors import HorovodBrokenError

_PAUSE = 0.05  # seconds between two looks for the port
_PLACE = ("GLOO_RENDEZVOUS_ADDR", "GLOO_RENDEZVOUS_PORT")
_meetings = itertools.count()  # ranks that leave and join again must not find the port of the meeting before


def meet() -> tuple[dist.Store, int, int]:
    """Returns the store through which the ranks of this job find each other, this rank, and how many there are.

    Raises:
        HorovodBrokenError: the launcher has told no place to meet, or rank 0 did not come.
    """
    told = [os.environ.get(f"HOROVOD_{name}", "") for name in ("RANK", "SIZE", *_PLACE)]
    if not all(told):
        raise HorovodBrokenError(
            "the launcher has not told the ranks who they are and where they meet (HOROVOD_RANK, _SIZE, "
            "_GLOO_RENDEZVOUS_ADDR and _PORT): without Horovod, ranks are started by jobs or by `python -m "
            "batchhvd.trainer bench`, not by MPI",
            found="no rendezvous",
            remedy="python -m batchhvd.trainer.install",
        )
    rank, size, address, port = int(told[0]), int(told[1]), told[2], told[3]
    place, patience = (
        f"http://{address}:{port}/batchhvd-exchange/port{next(_meetings)}",
        float(os.environ.get("HOROVOD_GLOO_TIMEOUT_SECONDS", "300")),
    )
    if rank == 0:
        return _open(address, size, place, patience), rank, size
    return dist.TCPStore(address, _look(place, patience), size, False, timedelta(seconds=patience)), rank, size


def _open(address: str, size: int, place: str, patience: float) -> dist.Store:
    """Opens the store, on loopback only if all ranks are on this machine, and tells its port."""
    listener = socket.create_server(("127.0.0.1" if address.startswith("127.") else "0.0.0.0", 0), backlog=1024)
    port = listener.getsockname()[1]
    store = dist.TCPStore(
        address,
        port,
        size,
        True,
        timedelta(seconds=patience),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    urllib.request.urlopen(urllib.request.Request(place, str(port).encode(), method="PUT"), timeout=30).close()
    return store


def _look(place: str, patience: float) -> int:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(place, timeout=30) as answer:
                return int(answer.read())
        except (urllib.error.URLError, ConnectionError):  # it has not been told yet
            time.sleep(_PAUSE)
    raise HorovodBrokenError(
        f"rank 0 has not come within {patience:g} s; read its log", found="no rank 0", remedy="look at rank 0's log"
    )
