"""The status page's own origin: what its host name answers, which is the page and what the page shows, to read only."""

from __future__ import annotations

import asyncio
import json
import posixpath
from collections.abc import Callable
from urllib.parse import quote

from attrs import evolve
from starlette.types import Message

from batchhvd.errors import AccessDeniedError, BadRequestError, NotFoundError
from batchhvd.service.batchai import output_files
from batchhvd.service.http import limits
from batchhvd.service.http.exchange import Answer, Ask, FileService, Here
from batchhvd.service.http.incoming import Incoming
from batchhvd.service.http.page_keys import PageKeys
from batchhvd.service.status import page, summary
from batchhvd.service.store.job import StoredJob

_LOGS = "stdouterr"


class PageSite:
    """Answers for the status page's host."""

    def __init__(self, here: Here, secret: Callable[[], str]) -> None:
        self._here, self._keys = here, PageKeys(secret, here.now)

    def serves(self, host: str) -> bool:
        """Says whether a Host header names the status page."""
        return self._keys.is_host(host)

    def link(self, host: str) -> Answer:
        """Answers with a link that opens the page once, on the port under which the caller knows the service."""
        port = host.partition(":")[2]
        url = f"http://{self._keys.host}{':' if port else ''}{port}/#{self._keys.code()}"
        return Answer(200, {"url": url, "seconds": limits.PAGE_CODE_SECONDS}, {"Cache-Control": "no-store"})

    async def answer(self, request: Incoming) -> Answer:
        """Answers one request.

        Raises:
            AccessDeniedError: 401, no session; or 403, the code is used, old, or wrong.
            NotFoundError: 404, the page's host has nothing there.
        """
        if request.method in ("GET", "HEAD") and request.path in page.FILES:
            return page.answer(request.path)
        if (request.method, request.path) == ("POST", "/session"):
            return await self._open(request)
        left = self._check(request)
        self._here.check()
        if (request.method, request.path) == ("GET", "/status.json"):
            return self._renewed(await asyncio.to_thread(summary.answer, self._here), left)
        if (request.method, request.path) == ("GET", "/logs"):
            return await asyncio.to_thread(self._logs, request)
        if (request.method, request.path) == ("GET", "/log"):
            return await self._log(request)
        raise NotFoundError("The status page's host shows the page only; shares and operations are at 127.0.0.1.")

    async def _log(self, request: Incoming) -> Answer:
        """Answers a piece of one log, as plain text, whatever the file's properties say."""
        account, share, folder, container = self._place(request)
        query = request.query()
        name, start = query.get("file", ""), query.get("from", "")
        if not name or "/" in name or not (start.isascii() and start.isdigit() and len(start) < 19):
            raise BadRequestError("file must be the name of a log, from a number of bytes.", code="InvalidField")
        path = posixpath.join(folder, name)
        service = self._here.storage(container=container)
        link = service.links(account, share, "r", self._here.now() + 60)(path)
        last = int(start) + limits.PAGE_LOG_BYTES - 1
        status, content = await _read(service, f"/{account}/{share}/{quote(path)}", link, f"bytes={start}-{last}")
        if status not in (200, 206):
            raise NotFoundError("There is no such piece of a log.", status=status, code="LogNotFound", target="file")
        return Answer(200, content, {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"})

    async def _open(self, request: Incoming) -> Answer:
        """Takes a code and gives a session."""
        try:
            asked = json.loads(await request.body(limits.PAGE_BODY_BYTES))
            code = str(asked["code"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BadRequestError('The body must be {"code": "…"}.', code="InvalidRequestContent") from error
        if not self._keys.redeem(code):
            text = "This link was used already, or is too old; `batchhvd status --open` prints a new one."
            raise AccessDeniedError(text, status=403, code="CodeRefused")
        request.trust()
        return Answer(204, None, {"Set-Cookie": self._keys.cookie(), "Cache-Control": "no-store"})

    def _check(self, request: Incoming) -> float:
        left = self._keys.left(request.headers.get("cookie", ""))
        if not left:
            text = "This browser has no session; `batchhvd status --open` prints a link that opens one."
            raise AccessDeniedError(text, status=401, code="AuthenticationFailed")
        request.trust()
        return left

    def _renewed(self, answer: Answer, left: float) -> Answer:
        """Returns an answer that also renews a session of which half is over."""
        if left > limits.PAGE_SESSION_SECONDS / 2:
            return answer
        return evolve(answer, headers={**answer.headers, "Set-Cookie": self._keys.cookie()})

    def _logs(self, request: Incoming) -> Answer:
        job = self._job(request)
        words = job.record.id.split("/")
        above = {words[at].lower(): words[at + 1] for at in range(1, len(words) - 1, 2)}
        names = {
            "resourceGroupName": above["resourcegroups"],
            "workspaceName": above["workspaces"],
            "experimentName": above["experiments"],
            "jobName": above["jobs"],
        }
        query = {"outputdirectoryid": _LOGS, "directory": ".", "linkexpiryinminutes": "1"}
        listed = output_files.list_files(self._here, Ask("GET", request.path, names, query, base=request.base)).body
        files = [
            {"name": entry["name"], "size": entry["properties"]["contentLength"]}
            for entry in listed["value"]
            if entry["fileType"] == "file"
        ]
        return Answer(200, {"files": files}, {"Cache-Control": "no-store"})

    def _job(self, request: Incoming) -> StoredJob:
        record = self._here.store.get(request.query().get("job", ""))
        if record is None or record.type != "jobs":
            raise NotFoundError("There is no such job.", code="ResourceNotFound", target="job")
        return StoredJob.of(record)

    def _place(self, request: Incoming) -> tuple[str, str, str, bool]:
        place = output_files.output_directory(self._here, self._job(request), _LOGS)
        if place is None:
            raise NotFoundError("The mount that held this job's logs is gone.", code="ResourceNotFound", target="job")
        return place


async def _read(service: FileService, path: str, link: str, part: str) -> tuple[int, bytes]:
    """Returns the status and the content of a read by the file service: it knows what may be opened."""
    status, content = 500, b""

    messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()  # this client does not leave
        return messages.pop()

    async def send(message: Message) -> None:
        nonlocal status, content
        status, content = message.get("status", status), content + message.get("body", b"")

    headers = [(b"host", b"127.0.0.1"), (b"x-ms-range", part.encode())]
    scope = {"type": "http", "method": "GET", "scheme": "http", "headers": headers, "client": ("127.0.0.1", 0)}
    await service({**scope, "raw_path": path.encode(), "query_string": link.encode()}, receive, send)
    return status, content
