"""The file service alone, in the foreground: an emulator of Azure Files for other people's tests.

It follows Azurite's conventions: the account ``devstoreaccount1`` with its published key, other accounts from
``AZURITE_ACCOUNTS``, a port beside Azurite's own, a line per request unless it is to be silent.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import ipaddress
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from attrs import frozen
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batchhvd.service import server
from batchhvd.service.files.app import Files
from batchhvd.service.http import host as hosts
from batchhvd.service.http.incoming import trust
from batchhvd.wire.facts.account_kinds import FILE_SKUS
from batchhvd.wire.facts.hosts import ACCOUNT_NAME

ACCOUNT = "devstoreaccount1"
"""The account of Azurite and of the storage emulator before it."""

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Its key, which Microsoft has published: it protects nothing."""


@frozen
class Emulator:
    """The file service as an application that refuses other hosts' names and can tell what it answers.

    Attributes:
        files: the file service, or something in front of it.
        any_host: whether it listens on more than the loopback interface, by names that it cannot know.
        silent: whether requests are not shown.
    """

    files: ASGIApp
    any_host: bool
    silent: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request."""
        name = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if not (self.any_host or hosts.is_ours(name)):
            await _refuse(send)  # a web page that reaches the loopback by a name of its own
            return
        await self.files(scope, receive, send if self.silent else _told(scope, send))


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until a signal ends it; 2 if it cannot start."""
    options = _options().parse_args(arguments)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="batchhvd-files-"))
    try:
        accounts = _accounts(options.accounts)
        files = _files(folder, accounts, options.soft_delete_days, _skus(options.sku, accounts))
        with closing(files), closing(_listen(options.host, options.port)) as listener:
            _serve(options, accounts, listener, files)
    except ValueError as error:
        print(f"batchhvd emulate files: {error}", file=sys.stderr)
        return 2
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _files(folder: Path, accounts: Mapping[str, Sequence[str]], kept_days: int, skus: Mapping[str, str]) -> Files:
    try:
        return Files(
            folder, accounts.get, kept_days=kept_days, sku=lambda account: skus.get(account, ""), admitted=trust
        )
    except (OSError, sqlite3.Error) as error:
        raise ValueError(f"cannot keep shares in {folder}: {error}; choose another --folder") from None


def _listen(host: str, port: int) -> server.Socket:
    try:
        return server.listen(port, host)
    except OSError as error:
        raise ValueError(f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port") from None


def connection_string(endpoint: str, account: str, key: str) -> str:
    """Returns the text by which storage clients find an account."""
    protocol = endpoint.partition(":")[0]
    return (
        f"DefaultEndpointsProtocol={protocol};AccountName={account};AccountKey={key};FileEndpoint={endpoint}/{account};"
    )


def _serve(
    options: argparse.Namespace, accounts: Mapping[str, Sequence[str]], listener: server.Socket, files: Files
) -> None:
    is_local = ipaddress.ip_address(listener.getsockname()[0]).is_loopback
    http = server.server(Emulator(files, not is_local, options.silent))

    def stop(*_: object) -> None:
        http.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    endpoint = f"http://{options.host}:{listener.getsockname()[1]}"
    threading.Thread(target=_announce, args=(http, endpoint, accounts, options, is_local), daemon=True).start()
    http.run(sockets=[listener])


def _announce(
    http: server.Server,
    endpoint: str,
    accounts: Mapping[str, Sequence[str]],
    options: argparse.Namespace,
    is_local: bool,
) -> None:
    while not http.started:
        threading.Event().wait(0.005)
    if not options.silent:
        where = options.folder or "a temporary folder, deleted at the end"
        print(f"Azure Files at {endpoint}, in {where}", file=sys.stderr)
    if not is_local:
        print("Whoever reaches this address can read and write it: the default key is published.", file=sys.stderr)
    for account, keys in accounts.items():
        print(connection_string(endpoint, account, keys[0]), flush=True)


def _accounts(text: str) -> Mapping[str, Sequence[str]]:
    """Returns keys by account, from ``name:key1:key2;name:key1`` as Azurite takes them."""
    found: dict[str, Sequence[str]] = {}
    for part in filter(None, text.split(";")):
        name, *keys = part.split(":")
        if not re.fullmatch(ACCOUNT_NAME, name) or not 1 <= len(keys) <= 2 or not all(map(_is_key, keys)):
            raise ValueError(f"AZURITE_ACCOUNTS must be NAME:KEY[:KEY];…, with keys in base64; {name[:30]!r} is not so")
        found[name] = keys
    return found or {ACCOUNT: [KEY]}


def _skus(said: Sequence[str], accounts: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """Returns SKUs by account, from ``name=sku``, or ``sku`` for the first account."""
    found: dict[str, str] = {}
    for text in said:
        name, _, sku = text.rpartition("=")
        name = name or next(iter(accounts))
        if sku not in FILE_SKUS or name not in accounts:
            raise ValueError(
                f"--sku must be ACCOUNT=SKU, of an account, with one of {', '.join(FILE_SKUS)}, not {text[:60]!r}"
            )
        found[name] = sku
    return found


def _is_key(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


def _told(scope: Scope, send: Send) -> Send:
    async def telling(message: Message) -> None:
        if message["type"] == "http.response.start":
            query = scope.get("query_string", b"").decode("latin-1")
            path = scope.get("raw_path", b"").decode("latin-1") + (f"?{_hidden(query)}" if query else "")
            client = (scope.get("client") or ("-",))[0]
            moment = f"{datetime.now().astimezone():%d/%b/%Y:%H:%M:%S %z}"
            print(f'{client} - - [{moment}] "{scope["method"]} {path}" {message["status"]}', file=sys.stderr)
        await send(message)

    return telling


def _hidden(query: str) -> str:
    """Returns a query without a link's signature."""
    return re.sub(r"(^|&)sig=[^&]*", r"\1sig=…", query)


async def _refuse(send: Send) -> None:
    body = b"This emulator answers under 127.0.0.1, localhost and ACCOUNT.file.localhost only."
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 421, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="batchhvd emulate files")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=10003)
    parser.add_argument("--folder", default="")
    parser.add_argument("--accounts", default="")
    parser.add_argument("--soft-delete-days", type=int, default=0)
    parser.add_argument("--sku", action="append", default=[])
    parser.add_argument("--silent", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
