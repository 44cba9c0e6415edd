"""Ports that are kept free for ranks which will listen on them later."""

from __future__ import annotations

import contextlib
import socket


class KeptPort:
    """A free port that nobody else is given until it is released; a rank can listen on it meanwhile.

    The socket is bound and does not listen. Linux lets another socket bind and listen beside it if both allow the reuse
    of addresses, as those of PyTorch and gRPC do, and does not choose the port for anybody else.

    Attributes:
        port: its number.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("", 0))
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Gives the port back; may be called again."""
        with contextlib.suppress(OSError):
            self._socket.close()
