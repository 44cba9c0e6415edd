"""Reads job and cluster files for commands, and prints their warnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from batchhvd.cli.frame.context import CliContext, told

if TYPE_CHECKING:
    from batchhvd import JobSpec

Spec = TypeVar("Spec")


def spoken(read: Callable[[], Spec]) -> Spec:
    """Returns what ``read`` returns, after printing its warnings on stderr."""
    with told():
        return read()


def job_spec(context: CliContext, path: str, group: str, account: str | None, mounts: tuple[str, ...]) -> JobSpec:
    """Reads a job.json.

    Args:
        context: where the service is.
        path: the file.
        group: the resource group that holds the accounts of ``mounts``.
        account: the storage account that replaces the file's placeholder, or None.
        mounts: ``PATH=ACCOUNT/SHARE``: the shares to mount at paths of the file.
    """
    from batchhvd import JobSpec

    shares = {}
    for text in mounts:
        where, _, what = text.partition("=")
        owner, _, share = what.partition("/")
        if not (where and owner and share):
            raise click.BadParameter(f"{text!r} is not of the form PATH=ACCOUNT/SHARE", param_hint="--mount")
        shares[where] = context.storage(group, owner).share(share)
    return spoken(lambda: JobSpec.read(path, account=account, mounts=shares))
