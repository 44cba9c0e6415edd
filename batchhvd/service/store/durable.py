"""Writes files that the service relies on so that after a power cut the old or the new whole content is there."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def replace(path: Path, text: str, mode: int = 0o644) -> None:
    """Replaces a file's content, and returns when the new content would outlive a power cut.

    Args:
        path: the file; its folder exists.
        text: its new content.
        mode: the permissions of the new file.
    """
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write(scratch, text.encode(), mode)
        os.replace(scratch, path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
    _sync_names(path.parent)


def _write(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_names(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
