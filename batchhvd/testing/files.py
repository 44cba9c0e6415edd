"""A file service within the test's own process, and accounts in it.

It runs in a thread: when pytest ends, however that happens, it has ended too. Its folder is one of pytest's temporary
directories, which pytest removes.
"""

from __future__ import annotations

import base64
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchhvd.service import emulate, server
from batchhvd.service.files.app import Files
from batchhvd.service.http.incoming import trust
from batchhvd.testing.faults import Fault, Faulty

if TYPE_CHECKING:
    from azure.storage.fileshare import ShareClient

SHARE = "test"
"""The share that each account has."""

_END = 30.0  # seconds; it takes hundredths of one


class AzureFiles:
    """A storage account of Azure Files with one share, ``test``, which is empty.

    Attributes:
        account: its name.
        key: its key, in base64.
        endpoint: its URL, without a slash at its end: ``http://127.0.0.1:PORT/ACCOUNT``.
        folder: the directory on this machine that has a directory for each share.
    """

    def __init__(self, url: str, account: str, key: str, folder: Path, faults: list[Fault]) -> None:
        self.account, self.key, self.folder = account, key, folder
        self.endpoint = f"{url}/{account}"
        self._faults = faults

    def __repr__(self) -> str:
        return f"AzureFiles({self.endpoint!r})"

    @property
    def connection_string(self) -> str:
        """What storage clients take to find the account."""
        return emulate.connection_string(self.endpoint.rpartition("/")[0], self.account, self.key)

    @cached_property
    def share(self) -> ShareClient:
        """A client for the share ``test``, which is there and empty; a failed request is not sent again."""
        return self.share_client(SHARE)

    def share_client(self, name: str, **options: Any) -> ShareClient:
        """Returns a client for a share, which need not exist; a failed request is not sent again.

        Args:
            name: the share's name.
            **options: further options of ``azure.storage.fileshare.ShareClient``, such as ``retry_total=3``.
        """
        from azure.storage.fileshare import ShareClient

        given: dict[str, Any] = {"retry_total": 0, "use_env_settings": False, "credential": self.key, **options}
        return ShareClient(self.endpoint, name, **given)

    def fault(
        self,
        kind: str,
        *,
        times: int | None = -1,
        operation: str = "",
        seconds: float = 0.5,
        point: str = "answer",
    ) -> Fault:
        """Makes requests go wrong from now on, until the test or the returned context manager ends.

        Args:
            kind: ``throttle``, ``server_busy``, ``cut`` or ``slow``; see ``Fault``.
            times: how many requests meet it, None for all. If it is not given: one, and all for ``slow``.
            operation: the only operation that meets it, such as ``Put Range``.
            seconds: how long ``slow`` lasts.
            point: where ``cut`` ends the connection: ``request`` or ``answer``.

        Raises:
            ValueError: there is no such kind, operation or point; the message names those that there are.
        """
        meant = (None if kind == "slow" else 1) if times == -1 else times
        made = Fault(kind, times=meant, operation=operation, seconds=seconds, point=point)
        self._faults.append(made)
        return made


class FilesService:
    """A file service for the tests of one process.

    Args:
        root: the folder that it keeps everything in.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._keys: dict[str, list[str]] = {}
        self._faults: dict[str, list[Fault]] = {}
        self._files = Files(root, self._keys.get, admitted=trust)
        self._listener = server.listen(0)
        faulty = Faulty(self._files, lambda account: self._faults.get(account, []))
        self._http = server.server(emulate.Emulator(faulty, any_host=False, silent=True))
        self._thread = threading.Thread(target=self._run, name="azure-files", daemon=True)
        self._thread.start()

    @contextmanager
    def account(self) -> Iterator[AzureFiles]:
        """Gives a storage account that is deleted afterwards."""
        name, key = f"test{os.urandom(10).hex()}", base64.b64encode(os.urandom(64)).decode()
        self._keys[name], self._faults[name] = [key], []
        (self._root / name / SHARE).mkdir(
            parents=True
        )  # a share is a directory: no request, so none that meets a fault
        try:
            yield AzureFiles(server.url(self._listener), name, key, self._root / name, self._faults[name])
        finally:
            del self._keys[name], self._faults[name]
            self._files.forget(name)
            shutil.rmtree(self._root / name, ignore_errors=True)

    def close(self) -> None:
        """Ends the service."""
        self._http.should_exit = True
        self._thread.join(_END)
        self._listener.close()
        self._files.close()

    def _run(self) -> None:
        self._http.run(sockets=[self._listener])
