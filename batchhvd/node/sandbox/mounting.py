"""Mounts file systems by system calls, in a mount table that belongs to this process alone (Linux only)."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil

from batchhvd.node.sandbox.libc import LIBC, LINUX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

READ_ONLY, BIND, RECURSIVE = 1, 4096, 16384
_PRIVATE, _DETACH, _NEW_NAMESPACE = 1 << 18, 2, 0x20000
SHARED = ("/proc", "/sys", "/dev")  # the kernel's own trees, the same inside a view
_KERNEL = frozenset(  # kinds of file systems that contain no users' files
    {"proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "mqueue"} | {"debugfs", "tracefs", "securityfs", "bpf"}
)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mounts a file system, by the system call.

    Raises:
        OSError: the kernel refused; the error's filename is the target.
    """
    arguments = (
        source.encode(),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    if LIBC.mount(*arguments) != 0:
        raise _last_error(target)


def unmount(target: str) -> None:
    """Calls umount2(2): the mount disappears at once, and is released when nothing uses it any more.

    Raises:
        OSError: the kernel refused; the error's filename is the target.
    """
    if LIBC.umount2(os.fsencode(target), _DETACH) != 0:
        raise _last_error(target)


def own_mounts() -> None:
    """Gives this process a mount table of its own; what it mounts disappears with it and its children.

    Raises:
        OSError: this is not Linux, or the process lacks the permission (root has it, except in some containers).
    """
    if not LINUX:
        raise OSError("only Linux has copy-on-write views")
    if LIBC.unshare(_NEW_NAMESPACE) != 0:
        raise _last_error()
    mount("none", "/", flags=RECURSIVE | _PRIVATE)


def mounted() -> list[tuple[str, str]]:
    """Returns the mount points that this process sees, with their kinds, in the order of mounting."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), left.split()[4])
            found.append((point, right.split()[0]))
    return found


def mount_points() -> list[str]:
    """Returns the mount points of file systems that contain users' files, "/" first; the kernel's own are left out."""
    found = ["/"]
    for point, kind in mounted():
        inside = any(f"{point}/".startswith(f"{shared}/") for shared in SHARED)
        if kind not in _KERNEL and not inside and point not in found:
            found.append(point)
    return found


def remove(folder: Path) -> None:
    """Removes a folder and its content, unless something is mounted in it, which must not be removed.

    Raises:
        OSError: something is mounted in it, or it cannot be removed.
    """
    inside = [point for point, _ in mounted() if f"{point}/".startswith(f"{folder}/")] if LINUX else []
    if inside:
        raise OSError(errno.EBUSY, "something is mounted there", inside[0])
    if folder.exists():
        shutil.rmtree(folder)


def _last_error(target: str | None = None) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), target)
