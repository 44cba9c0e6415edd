"""The door of a node: who comes in over SSH, how often somebody may try, and what is open inside."""

from __future__ import annotations

import asyncio
import collections
import ipaddress
import logging
import time
from collections.abc import Callable

import asyncssh
from attrs import define, field

from batchhvd.service.http import limits
from batchhvd.service.login.session import NodeSession
from batchhvd.service.login.target import ClosedError, NodeTarget

log = logging.getLogger("batchhvd.service.login")
_MEMORY = 60.0  # seconds that a wrong password slows down the next ones


@define
class Brake:
    """Slows down passwords for a cluster while wrong ones come.

    Attributes:
        now: the clock, in seconds.
    """

    now: Callable[[], float] = time.monotonic
    _wrong: dict[str, collections.deque[float]] = field(factory=dict)

    def seconds(self, cluster: str) -> float:
        """Returns how long the next password waits: twice as long after each wrong one of the last minute."""
        wrong, now = self._wrong.get(cluster, collections.deque()), self.now()
        while wrong and now - wrong[0] > _MEMORY:
            wrong.popleft()
        return 0.0 if not wrong else min(limits.LOGIN_WAIT_SECONDS, 0.1 * 2 ** (len(wrong) - 1))

    def note(self, cluster: str) -> None:
        """Notes a wrong password."""
        self._wrong.setdefault(cluster, collections.deque(maxlen=64)).append(self.now())


@define
class Lobby:
    """Who is connected, and one who is looked at, at a time, of those who try passwords.

    Attributes:
        strangers: the connections that have not logged in.
        guests: those that have, and their ports.
        brake: slows down passwords.
        turn: lets passwords wait for each other, so that more connections give no more tries.
        last: when the last connection ended.
    """

    strangers: set[NodeDoor] = field(factory=set)
    guests: dict[NodeDoor, int] = field(factory=dict)
    brake: Brake = field(factory=Brake)
    turn: dict[str, asyncio.Lock] = field(factory=lambda: collections.defaultdict(asyncio.Lock))
    last: float = field(factory=time.monotonic)

    @property
    def is_full(self) -> bool:
        """Whether nobody else may connect."""
        known = len(self.strangers) + len(self.guests)
        return len(self.strangers) >= limits.LOGIN_STRANGERS or known >= limits.LOGIN_CONNECTIONS

    def close(self, port: int) -> None:
        """Ends all connections to a port."""
        for door, number in list(self.guests.items()):
            if number == port:
                door.shut()


class NodeDoor(asyncssh.SSHServer):
    """One connection.

    Args:
        target: the node behind the port.
        lobby: who else is connected.
        port: the port.
    """

    def __init__(self, target: NodeTarget, lobby: Lobby, port: int) -> None:
        self._target, self._lobby, self._port = target, lobby, port
        self._tries = self._passwords = self._sessions = 0
        self._user = ""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Lets a connection in, unless there are too many."""
        self._connection = conn
        if self._lobby.is_full:
            conn.abort()
        self._lobby.strangers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._lobby.strangers.discard(self)
        self._lobby.guests.pop(self, None)
        self._lobby.last = time.monotonic()

    def shut(self) -> None:
        """Ends the connection."""
        self._connection.close()

    # -- who comes in --

    def begin_auth(self, username: str) -> bool:
        """Demands proof of everybody."""
        self._user = username
        return True  # nobody comes in without proof

    def auth_completed(self) -> None:
        """Notes that the client has proved who it is."""
        self._lobby.strangers.discard(self)
        self._lobby.guests[self] = self._port
        log.info("%s was entered by %s", self._target.node, ascii(self._user))

    def public_key_auth_supported(self) -> bool:
        """Keys are taken."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Says whether a key opens the node; that the client holds it is checked elsewhere."""
        return self._may_try() and self._asked(lambda: self._target.has_key(username, key.public_data))

    def password_auth_supported(self) -> bool:
        """Passwords are taken if the cluster has one."""
        return self._asked(self._target.takes_passwords)

    def kbdint_auth_supported(self) -> bool:
        """Questions by keyboard are not asked."""
        return False

    async def validate_password(self, username: str, password: str) -> bool:
        """Says whether a password opens the node; after wrong ones it takes longer."""
        self._passwords += 1
        if not self._may_try() or self._passwords > limits.LOGIN_PASSWORDS:
            self.shut()
            return False
        cluster, brake = self._target.cluster, self._lobby.brake
        async with self._lobby.turn[cluster]:
            await asyncio.sleep(brake.seconds(cluster))
            right = await asyncio.to_thread(self._asked, lambda: self._target.has_password(username, password))
            if not right:
                brake.note(cluster)
                log.info("a wrong password for %s", self._target.node, extra={"refused": True})
        return right

    def _may_try(self) -> bool:
        self._tries += 1
        if self._tries > limits.LOGIN_TRIES:
            self.shut()
        return self._tries <= limits.LOGIN_TRIES

    def _asked(self, question: Callable[[], bool]) -> bool:
        """Answers a question about the node; no, if it does not exist any more."""
        try:
            return question()
        except ClosedError:
            return False

    # -- what is open inside --

    def session_requested(self) -> NodeSession | bool:
        """Opens a session, unless there are too many."""
        if self._sessions >= limits.LOGIN_SESSIONS:
            return False
        self._sessions += 1
        return NodeSession(lambda terminal: self._target.entrance(terminal=terminal), self._ended)

    def _ended(self) -> None:
        self._sessions -= 1

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        """Forwards a port of the node, and nothing beyond it."""
        if not _is_loopback(dest_host):
            raise _prohibited(f"only ports of the node itself are forwarded, not {dest_host}")
        if not self._target.is_here:
            raise _prohibited("ports of nodes on other machines are not forwarded")
        return True

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        """Opens no port on this machine for a client."""
        return False  # nothing listens on this machine for a client


def _prohibited(reason: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, reason)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
