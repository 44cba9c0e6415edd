"""JSON pointers (RFC 6901): how an error names the field that is wrong."""

from __future__ import annotations


def child(pointer: str, name: str | int) -> str:
    """Returns the pointer of a member or item below another one."""
    return f"{pointer}/" + str(name).replace("~", "~0").replace("/", "~1")
