"""Where a job finds its files: mounted shares, other volumes, and paths below them."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from attrs import field, frozen

from batchhvd.errors import SpecError
from batchhvd.wire.facts.documents import Body, Document
from batchhvd.wire.facts.hosts import FILE_DOMAIN, read_url
from batchhvd.wire.facts.mount_roots import JOB_ROOT

ROOT = f"${JOB_ROOT}"


class MountPath(str):
    """A path on the node, still with its variable; ``/`` makes a path below it.

    It is a string: it goes into f-strings, command lines and job files as it is. In a command line a path with a
    blank needs the double quotes of the shell, as in ``f'--dir="{mount / "my data"}"'``.
    """

    __slots__ = ()

    def __truediv__(self, below: str) -> MountPath:
        """Returns a path below this one.

        Raises:
            SpecError: the part is absolute, empty or leads out with ``..``.
        """
        _check_inside(below, "a path below a mount")
        return MountPath(f"{self}/{posixpath.normpath(below)}")


def _check_inside(path: str, what: str, pointer: str = "") -> None:
    parts = path.split("/")
    if not path.strip() or path.startswith("/") or ".." in parts or "\0" in path:
        raise SpecError(
            f'"{path}" is not {what}', pointer=pointer, remedy='give a relative path without "..", such as "cifar/logs"'
        )


def _check_mount_path(_mount: object, _attribute: object, path: str) -> None:
    _check_inside(path, "a path below the mount root", "/relativeMountPath")


@frozen
class Mount:
    """A file share as one job sees it; ``FileShare.mount`` makes it.

    ``mount / "a/b"`` is a path on the node, ``str(mount)`` the mounted directory itself.

    Attributes:
        account: the storage account's name.
        share: the share's name.
        path: where it is mounted, relative to ``$AZ_BATCHAI_JOB_MOUNT_ROOT``.
        url: the share's address; Azure's own by default, and what the local service understands too.
        key: the account's key, or None to let the client look it up; never shown.
        extra: further fields as the wire has them, such as ``fileMode``.

    Raises:
        SpecError: the path leads out of the mount root.
    """

    account: str
    share: str
    path: str = field(validator=_check_mount_path)
    url: str = field(kw_only=True)
    key: str | None = field(default=None, kw_only=True, repr=False, eq=False)
    extra: Document = field(factory=dict, kw_only=True, repr=False)

    @url.default
    def _azure_url(self) -> str:
        return f"https://{self.account}.{FILE_DOMAIN}/{self.share}"

    def __truediv__(self, below: str) -> MountPath:
        """Returns a path below the mounted directory."""
        return MountPath(self) / below

    def __str__(self) -> str:
        return f"{ROOT}/{self.path}"

    def to_document(self) -> Body:
        """Returns the wire's ``azureFileShares`` item, without the key."""
        fields = {"accountName": self.account, "azureFileUrl": self.url, "relativeMountPath": self.path}
        return {**fields, **self.extra}

    @classmethod
    def from_document(cls, block: Document) -> Mount:
        """Returns the mount of an ``azureFileShares`` item; the account may stand in its address only.

        Raises:
            SpecError: the address names no account and share, or another account than ``accountName``.
        """
        rest = dict(block)
        url, path = rest.pop("azureFileUrl"), rest.pop("relativeMountPath")
        account, share = _account_and_share(url)
        given = rest.pop("accountName", None) or account
        if given.lower() != account.lower():
            problem = f'"{given}" is not the account of {url}'
            raise SpecError(problem, pointer="/accountName", remedy=f'write "{account}" or leave it out')
        credentials = dict(rest.pop("credentials", None) or {})
        key = credentials.pop("accountKey", None)
        if credentials:
            rest["credentials"] = credentials
        return cls(given, share, path, url=url, key=key, extra=rest)


def _account_and_share(url: str) -> tuple[str, str]:
    """Reads host style (``https://ACCOUNT.file.…/SHARE``) and path style (``http://127.0.0.1:PORT/ACCOUNT/SHARE``)."""
    split = read_url(url)
    segments = [unquote(part) for part in split.path.split("/") if part]
    host = split.hostname or ""
    if ".file." in host:
        segments.insert(0, host.partition(".")[0])
    if split.scheme not in ("http", "https") or len(segments) != 2:
        problem = f'"{url}" is not the address of a file share'
        remedy = f"write https://ACCOUNT.{FILE_DOMAIN}/SHARE"
        raise SpecError(problem, pointer="/azureFileUrl", remedy=remedy)
    return segments[0], segments[1]


KINDS = ("azureBlobFileSystems", "fileServers", "unmanagedFileSystems")


@frozen
class Volume:
    """A volume other than a file share: a blob container, a file server or a mount command.

    Attributes:
        kind: one of ``KINDS``, the wire's name of its list.
        path: where it is mounted, relative to ``$AZ_BATCHAI_JOB_MOUNT_ROOT``.
        settings: its other fields as the wire has them; never shown, they may hold a key.
    """

    kind: str
    path: str = field(validator=_check_mount_path)
    settings: Document = field(factory=dict, repr=False)

    def __truediv__(self, below: str) -> MountPath:
        """Returns a path below the mounted directory."""
        return MountPath(self) / below

    def __str__(self) -> str:
        return f"{ROOT}/{self.path}"

    def to_document(self) -> Body:
        """Returns the wire's item of the list ``kind``."""
        return {**self.settings, "relativeMountPath": self.path}
