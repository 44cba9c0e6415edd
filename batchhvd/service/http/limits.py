"""Every limit of the service, in one place; docs/security.md has the same table, and a test compares them.

Up to its token, everybody on this machine may speak to the service. What somebody unknown can make it keep, wait for or
write is bounded here.
"""

from __future__ import annotations

import os
import resource

HEAD_BYTES = 64 << 10
"""A request's head, its trailers included, and each stretch of a chunked body without content: 431."""

HEAD_FIELDS = 200
"""The header fields of one request: 431."""

QUERY_FIELDS = 100
"""The parameters of a query: 400."""

BODY_BYTES = 4 << 20
"""The body of a request to Resource Manager and Batch AI: 413."""

FILE_BODY_BYTES = 4 << 20
"""The body of a request to the file service, as in Azure: 413."""

BLOB_BODY_BYTES = 5000 << 20
"""The content of a blob that one request puts, of which 1 MiB is held in memory: 413."""

FORM_BYTES = 64 << 10
"""The body of a request to a token endpoint: 413."""

FORM_FIELDS = 32
"""The fields of a request to a token endpoint: 400."""

PAGE_BODY_BYTES = 1 << 10
"""The body with which a browser opens a session of the status page: 413."""

HELD_BODY_BYTES = 64 << 10
"""The body of a request that is held back until there is news; a larger one is answered at once."""

HELD_SECONDS = 60.0
"""How long an answer is held back."""

REST_BYTES = 8 << 20
"""What may still come of a body that was answered before its end; then the connection is closed."""

HEAD_SECONDS = 10.0
"""From a request's first byte to the end of its head, and for a TLS handshake: 408."""

BODY_SECONDS = 60.0
"""Between two pieces of a body: 408."""

IDLE_SECONDS = 10.0
"""Without a request, on a connection that has shown no credential: 408 before the first request, else closed."""

TRUSTED_IDLE_SECONDS = 120
"""Between two requests, on a connection that has shown one: longer than clients keep it open."""

LINGER_SECONDS = 2.0
"""For a client to read why it was refused; what it still sends meanwhile is thrown away."""

LINGERING = 16
"""Refused connections that are kept open for this."""

CONNECTIONS = 1000
"""Open connections, if the process may open enough files: 429."""

STRANGERS = 0.5
"""The share of them that have shown no credential; the oldest one that sends nothing gives way (408), else 429."""

PROXIED = 0.25
"""The share of them that come through the proxy for Azure's names: 429."""

LOG_LINES = 10
"""Lines a second about refused requests in the log; the next line says how many were left out."""

PAGE_LOG_BYTES = 1 << 20
"""The piece of a log that the status page reads at a time."""

PAGE_CODES = 16
"""Codes for the status page that are given out and not used; the oldest ends when there would be more."""

PAGE_CODE_SECONDS = 300
"""How long the link to the status page opens it: 403."""

PAGE_SESSION_SECONDS = 12 * 3600
"""How long a browser may go on after it last looked at the status page: 401."""

LOGIN_NODES = 200
"""The nodes that have a port for logins, if the process may open enough files; the others are listed without one."""

LOGIN_STRANGERS = 10
"""Connections to the SSH server that have not logged in; a further one is closed."""

LOGIN_CONNECTIONS = 100
"""Connections to the SSH server in all; a further one is closed."""

LOGIN_SESSIONS = 20
"""Programs, shells and transfers at a time over one connection to the SSH server; a further one is refused."""

LOGIN_SECONDS = 30
"""From a connection to the SSH server to its login; then it is closed."""

LOGIN_TRIES = 20
"""Keys and passwords that one connection may try; then it is closed."""

LOGIN_PASSWORDS = 3
"""Passwords that one connection may try; then it is closed."""

LOGIN_WAIT_SECONDS = 5.0
"""How long a password waits before it is looked at, while wrong ones for its cluster come; it doubles from 0.1 s."""

_OWN_FILES = 32  # that the service itself has open at least: its database, logs, pipes, files of shares


def connections() -> int:
    """Returns how many connections may be open: a quarter of the files that the process may open stay its own."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return CONNECTIONS
    return max(8, min(CONNECTIONS, allowed - max(_OWN_FILES, allowed // 4)))


def login_nodes() -> int:
    """Returns how many nodes may have a port for logins: an eighth of the files that the process may open."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LOGIN_NODES if allowed == resource.RLIM_INFINITY else min(LOGIN_NODES, allowed // 8)


def open_files() -> int:
    """Returns how many files and connections the process has open."""
    return len(os.listdir("/dev/fd"))
