"""Security descriptors in the binary form (self-relative, base64) and in SDDL, one into the other.

Source: the Open Specifications of Windows Data Types, MS-DTYP 2.4 and 2.5.1. Only what file permissions consist of:
owner, group, access-allowed and access-denied entries; anything else is refused by name.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct

from batchhvd.service.storage.protocol.refusal import refusal

_HEAD = struct.Struct("<BBHIIII")  # revision, zero, control, offsets of owner, group, audit list, access list
_ACL = struct.Struct("<BBHHH")  # revision, zero, size, entries, zero
_ACE = struct.Struct("<BBHI")  # kind, flags, size, mask
_DACL, _SACL, _RELATIVE = 0x4, 0x10, 0x8000
_CONTROL = {"P": 0x1000, "AI": 0x0400, "AR": 0x0100}
_KINDS = {"A": 0, "D": 1}
_FLAGS = {"OI": 1, "CI": 2, "NP": 4, "IO": 8, "ID": 16}
_MASKS = {"FA": 0x1F01FF, "FR": 0x120089, "FW": 0x120116, "FX": 0x1200A0}
_ALIASES = {
    "SY": "S-1-5-18", "BA": "S-1-5-32-544", "BU": "S-1-5-32-545", "BG": "S-1-5-32-546", "WD": "S-1-1-0",
    "AU": "S-1-5-11", "CO": "S-1-3-0", "CG": "S-1-3-1", "LS": "S-1-5-19", "NS": "S-1-5-20", "OW": "S-1-3-4",
}  # fmt: skip
_PARTS = re.compile(r"(?:O:(?P<O>.+?))?(?:G:(?P<G>.+?))?(?:D:(?P<D>[A-Z]*)(?P<A>(?:\([^()]*\))*))?(?P<S>S:.*)?")
_NO_AUDIT = "S:NO_ACCESS_CONTROL"


def to_sddl(text: str) -> str:
    """Returns a binary descriptor as SDDL; refuses what it cannot read."""
    try:
        data = base64.b64decode(text, validate=True)
        _, _, control, owner, group, audit, access = _HEAD.unpack_from(data)
        parts = [f"O:{_sid(data, owner)}" if owner else "", f"G:{_sid(data, group)}" if group else ""]
        if control & _DACL:
            words = "".join(word for word, bit in _CONTROL.items() if control & bit)
            parts.append(f"D:{words}{_entries(data, access)}")
        if audit:
            raise _unsupported("audit lists")
        return "".join([*parts, _NO_AUDIT if control & _SACL else ""])
    except (binascii.Error, struct.error, IndexError, StopIteration):
        raise refusal("InvalidHeaderValue", "x-ms-file-permission is not a binary security descriptor.") from None


def to_binary(text: str) -> str:
    """Returns SDDL as a binary descriptor; refuses what this service cannot write in that form."""
    found = _PARTS.fullmatch(text)
    if not found or (found["S"] and found["S"] != _NO_AUDIT):
        raise _unsupported("audit lists")
    control = _RELATIVE | (_SACL if found["S"] else 0) | (_DACL if found["D"] is not None else 0)
    for word in re.findall("P|AI|AR", found["D"] or ""):
        control |= _CONTROL[word]
    pieces = [_acl(found["A"]) if found["D"] is not None else b"", *(_sid_bytes(found[name]) for name in "OG")]
    place, offsets = _HEAD.size, []
    for piece in pieces:
        offsets.append(place if piece else 0)
        place += len(piece)
    access, owner, group = offsets
    return base64.b64encode(_HEAD.pack(1, 0, control, owner, group, 0, access) + b"".join(pieces)).decode()


def _sid(data: bytes, at: int) -> str:
    count = data[at + 1]
    numbers = struct.unpack_from(f"<{count}I", data, at + 8)
    text = "-".join(["S", str(data[at]), str(int.from_bytes(data[at + 2 : at + 8], "big")), *map(str, numbers)])
    return next((alias for alias, sid in _ALIASES.items() if sid == text), text)


def _sid_bytes(text: str | None) -> bytes:
    if not text:
        return b""
    found = re.fullmatch(r"S-(\d+)-(\d+)((?:-\d+)+)", _ALIASES.get(text, text))
    if not found:
        raise _unsupported(f"the name {text[:60]}")
    numbers = [int(number) for number in found[3][1:].split("-")]
    if any(number >= 1 << 32 for number in numbers) or len(numbers) > 15:
        raise _unsupported(f"the name {text[:60]}")
    head = struct.pack("BB", int(found[1]) & 255, len(numbers)) + (int(found[2]) % (1 << 48)).to_bytes(6, "big")
    return head + struct.pack(f"<{len(numbers)}I", *numbers)


def _entries(data: bytes, at: int) -> str:
    _, _, _, count, _ = _ACL.unpack_from(data, at)
    at, parts = at + _ACL.size, []
    for _ in range(count):
        kind, flags, size, mask = _ACE.unpack_from(data, at)
        letter = next((letter for letter, number in _KINDS.items() if number == kind), None)
        if letter is None:
            raise _unsupported(f"entries of kind {kind}")
        words = "".join(word for word, bit in _FLAGS.items() if flags & bit)
        right = next((word for word, number in _MASKS.items() if number == mask), f"0x{mask:x}")
        parts.append(f"({letter};{words};{right};;;{_sid(data, at + _ACE.size)})")
        at += size
    return "".join(parts)


def _acl(text: str) -> bytes:
    entries = [_ace(entry.split(";")) for entry in re.findall(r"\(([^()]*)\)", text)]
    body = b"".join(entries)
    return _ACL.pack(2, 0, _ACL.size + len(body), len(entries), 0) + body


def _ace(fields: list[str]) -> bytes:
    kind, flags, right, *between, name = fields
    if kind not in _KINDS or any(between) or right not in _MASKS and not re.fullmatch("0x[0-9a-fA-F]{1,8}", right):
        raise _unsupported(f"the entry ({';'.join(fields)[:80]})")
    bits = sum(_FLAGS[word] for word in re.findall("OI|CI|NP|IO|ID", flags))
    sid = _sid_bytes(name)
    mask = _MASKS[right] if right in _MASKS else int(right, 16)
    return _ACE.pack(_KINDS[kind], bits, _ACE.size + len(sid), mask) + sid


def _unsupported(what: str) -> Exception:
    return refusal("NotImplemented", f"Binary permissions with {what} are not supported; use SDDL.")
