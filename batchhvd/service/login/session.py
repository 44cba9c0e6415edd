"""A program, shell or transfer in a node, and the channel that it speaks through."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Callable, Mapping, Sequence

import asyncssh
from asyncssh.session import DataType

from batchhvd.service.login.target import ClosedError

_PIECE = 1 << 16
_MOST = 1 << 18  # bytes from the client that wait for the program
_PATIENCE = 8.0  # seconds for a program to end after its connection
_ACCEPTED = ("LANG", "LANGUAGE", "TZ", "COLORTERM")  # variables that a client may set
_CLOSED = 69  # the exit code if a node cannot be entered: EX_UNAVAILABLE of sysexits.h
_SFTP = ("-I", "-m", "batchhvd.service.login.sftp")

Channel = asyncssh.SSHServerChannel[bytes]
Entrance = Callable[[bool], Sequence[str]]


class NodeSession(asyncssh.SSHServerSession[bytes]):
    """One session: starts what the client asks for, and hands on bytes, window sizes, signals and the exit code.

    Args:
        entrance: returns the words before a command line with which it runs in the node; is told whether there is a
            terminal, and may take long.
        ended: is called when the session is over.
    """

    def __init__(self, entrance: Entrance, ended: Callable[[], None]) -> None:
        self._entrance, self._ended = entrance, ended
        self._words: list[str] = []
        self._terminal = ""
        self._size = 80, 24, 0, 0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._outputs: dict[int, DataType] = {}
        self._input = -1
        self._waiting, self._eof, self._is_full = bytearray(), False, False
        self._loop = asyncio.get_running_loop()

    # -- what the client asks for --

    def connection_made(self, chan: Channel) -> None:
        """Keeps the channel."""
        self._channel = chan

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Mapping[int, int]
    ) -> bool:
        """Notes which terminal the client has."""
        self._terminal, self._size = term_type or "dumb", term_size
        return True

    def shell_requested(self) -> bool:
        """Chooses a shell."""
        self._words = [_shell()] if self._terminal else [_shell(), "-s"]
        return True

    def exec_requested(self, command: str) -> bool:
        """Chooses a shell's command line."""
        self._words = [_shell(), "-c", command]
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        """Chooses the server of SFTP; there is no other subsystem."""
        self._words = [sys.executable, *_SFTP]
        return subsystem == "sftp"

    def session_started(self) -> None:
        """Starts what was chosen."""
        self._task = self._loop.create_task(self._run())

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """Gives the terminal its new size."""
        self._size = width, height, pixwidth, pixheight
        if self._terminal and self._input >= 0:
            _resize(self._input, self._size)

    def signal_received(self, signal: str) -> None:
        """Sends a signal."""
        self._send(getattr(_signals, f"SIG{signal}", None))

    def break_received(self, msec: int) -> bool:
        """Sends an interrupt."""
        self._send(_signals.SIGINT)
        return True

    # -- its course --

    async def _run(self) -> None:
        code = _CLOSED
        try:
            words = await asyncio.to_thread(self._entrance, bool(self._terminal))
            self._process = await self._start([*words, *self._words])
            code = await self._process.wait()
            await self._drained()
        except (ClosedError, OSError) as error:
            self._channel.write_stderr(f"batchhvd: {error}\r\n".encode())
        finally:
            self._close()
            if not self._channel.is_closing():
                self._channel.exit(code if code >= 0 else 128 - code)

    async def _start(self, words: Sequence[str]) -> asyncio.subprocess.Process:
        if self._terminal:
            process = await self._on_terminal(words)
        else:
            process = await self._on_pipes(words)
        self.resume_writing()
        self._feed()
        return process

    async def _on_terminal(self, words: Sequence[str]) -> asyncio.subprocess.Process:
        own, theirs = pty.openpty()
        _resize(own, self._size)
        self._own_ends(own, {os.dup(own): None})
        try:
            return await _spawn(words, self._variables(), (theirs, theirs, theirs), _take_terminal)
        finally:
            os.close(theirs)

    async def _on_pipes(self, words: Sequence[str]) -> asyncio.subprocess.Process:
        (stdin, own), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
        self._own_ends(own, {out: None, err: asyncssh.EXTENDED_DATA_STDERR})
        try:
            return await _spawn(words, self._variables(), (stdin, stdout, stderr), None)
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)

    def _own_ends(self, input: int, outputs: dict[int, DataType]) -> None:
        """Keeps this side of what the program is connected to; nothing may ever wait there."""
        for descriptor in (input, *outputs):
            os.set_blocking(descriptor, False)
        self._input, self._outputs = input, outputs

    def _variables(self) -> dict[str, str]:
        given = {str(name): str(value) for name, value in self._channel.get_environment().items()}
        kept = {name: value for name, value in given.items() if name in _ACCEPTED or name.startswith("LC_")}
        own = {"TERM": self._terminal} if self._terminal else {}
        client, server = (self._channel.get_extra_info(name) for name in ("peername", "sockname"))
        where = f"{client[0]} {client[1]} {server[0]} {server[1]}"
        return {**os.environ, **kept, **own, "SSH_CONNECTION": where}

    # -- bytes --

    def data_received(self, data: bytes, datatype: DataType) -> None:
        """Hands on what the client sends."""
        self._waiting += data
        self._feed()
        if len(self._waiting) > _MOST and not self._is_full:
            self._is_full = True
            self._channel.pause_reading()

    def eof_received(self) -> bool:
        """Ends the program's input."""
        self._eof = True
        self._feed()
        return True  # the other direction stays open

    def _feed(self) -> None:
        """Hands on what the client has sent, as far as the program takes it."""
        if self._input < 0:
            return
        try:
            while self._waiting:
                del self._waiting[: os.write(self._input, self._waiting[:_PIECE])]
        except BlockingIOError:
            self._loop.add_writer(self._input, self._feed)
            return
        except OSError:  # the program does not read any more
            self._waiting.clear()
        self._loop.remove_writer(self._input)
        if self._is_full:  # later, because it delivers what waits there at once
            self._is_full = False
            self._loop.call_soon(self._channel.resume_reading)
        elif self._eof:
            self._end_input()

    def _end_input(self) -> None:
        self._eof = False
        if self._terminal:
            with contextlib.suppress(OSError):
                os.write(self._input, b"\x04")
        else:
            os.close(self._input)
            self._input = -1

    def pause_writing(self) -> None:
        """Reads no more output until the client has taken what there is."""
        for descriptor in self._outputs:
            self._loop.remove_reader(descriptor)

    def resume_writing(self) -> None:
        """Reads output again."""
        for descriptor in self._outputs:
            self._loop.add_reader(descriptor, self._hand_on, descriptor)

    def _hand_on(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if data:
            self._channel.write(data, self._outputs[descriptor])
        else:
            self._loop.remove_reader(descriptor)
            del self._outputs[descriptor]
            os.close(descriptor)

    async def _drained(self) -> None:
        """Waits until all output is handed on, however slow the client is."""
        while self._outputs and not self._channel.is_closing():
            await asyncio.sleep(0.01)

    # -- the end --

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the program to hang up, and forces it to soon after."""
        self._send(_signals.SIGHUP)
        if self._process is not None and self._process.returncode is None:
            self._loop.call_later(_PATIENCE, self._send, _signals.SIGTERM)
        self._close()
        self._ended()

    def _close(self) -> None:
        for descriptor in self._outputs:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
        self._outputs = {}
        if self._input >= 0:
            self._loop.remove_writer(self._input)
            os.close(self._input)
            self._input = -1

    def _send(self, number: int | None) -> None:
        if number is not None and self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


_signals = signal


def _shell() -> str:
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


async def _spawn(
    words: Sequence[str], variables: Mapping[str, str], streams: tuple[int, int, int], before: Callable[[], None] | None
) -> asyncio.subprocess.Process:
    stdin, stdout, stderr = streams
    return await asyncio.create_subprocess_exec(
        *words, stdin=stdin, stdout=stdout, stderr=stderr, env=variables, start_new_session=True, preexec_fn=before
    )


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _resize(descriptor: int, size: tuple[int, int, int, int]) -> None:
    width, height, wide, high = size
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, wide, high))
