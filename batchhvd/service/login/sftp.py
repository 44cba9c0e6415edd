"""``python -m batchhvd.service.login.sftp``: serves SFTP on standard input and output, inside a node."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import asyncssh
from asyncssh.logging import logger
from asyncssh.sftp import run_sftp_server

_VERSION = 3  # what all clients speak


class _Channel:
    """What asyncssh's server wants to know of a channel."""

    def get_connection(self) -> None:
        """There is none here."""


class _Output(asyncio.StreamWriter):
    @property
    def channel(self) -> asyncio.WriteTransport:
        return self.transport


class _Input(asyncio.StreamReader):
    logger = logger

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


async def serve() -> None:
    """Serves until the input ends."""
    loop, reader = asyncio.get_running_loop(), _Input()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    writer = _Output(transport, protocol, None, loop)
    server = asyncssh.SFTPServer(cast("asyncssh.SSHServerChannel[bytes]", _Channel()))
    await run_sftp_server(server, reader, writer, _VERSION)  # type: ignore[arg-type]
    while transport.get_write_buffer_size():  # it is closed, but what it has still to write goes on
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(serve())
