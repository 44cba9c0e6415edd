"""What a VM size means here: how many cores and GPUs a node of that size pretends to have."""

from __future__ import annotations

import re
from typing import NamedTuple


class VmSize(NamedTuple):
    """One VM size.

    Attributes:
        name: as Azure spells it, in upper case.
        cores: virtual cores.
        gpus: GPUs, 0 where there are none.
        memory: bytes.
    """

    name: str
    cores: int
    gpus: int
    memory: int


# name, cores, GPUs, GiB. Source: Azure's own tables of the sizes that Batch AI offered in 2018.
_TABLE = """
NC6 6 1 56, NC12 12 2 112, NC24 24 4 224, NC24R 24 4 224, NC6S_V2 6 1 112, NC12S_V2 12 2 224, NC24S_V2 24 4 448,
NC24RS_V2 24 4 448, NC6S_V3 6 1 112, NC12S_V3 12 2 224, NC24S_V3 24 4 448, NC24RS_V3 24 4 448, ND6S 6 1 112,
ND12S 12 2 224, ND24S 24 4 448, ND24RS 24 4 448, NV6 6 1 56, NV12 12 2 112, NV24 24 4 224, D1 1 0 3.5, D2 2 0 7,
D3 4 0 14, D4 8 0 28, D11 2 0 14, D12 4 0 28, D13 8 0 56, D14 16 0 112, D1_V2 1 0 3.5, D2_V2 2 0 7, D3_V2 4 0 14,
D4_V2 8 0 28, D5_V2 16 0 56, D11_V2 2 0 14, D12_V2 4 0 28, D13_V2 8 0 56, D14_V2 16 0 112, D2_V3 2 0 8, D4_V3 4 0 16,
D8_V3 8 0 32, D16_V3 16 0 64, D32_V3 32 0 128, D64_V3 64 0 256, A1_V2 1 0 2, A2_V2 2 0 4, A4_V2 4 0 8, A8_V2 8 0 16,
F1 1 0 2, F2 2 0 4, F4 4 0 8, F8 8 0 16, F16 16 0 32, H8 8 0 56, H16 16 0 112, H16R 16 0 112
"""


def _sizes() -> dict[str, VmSize]:
    rows = (row.split() for row in _TABLE.replace("\n", " ").split(","))
    return {
        name: VmSize(f"STANDARD_{name}", int(cores), int(gpus), int(float(gib) * 2**30))
        for name, cores, gpus, gib in rows
    }


SIZES = _sizes()


def size(name: str) -> VmSize:
    """Returns a VM size by its name, without regard to case and to ``Standard_``.

    Of a size that is not in the table the first number of its name is taken as its cores (by guess; the names of most
    sizes say so), with 3.5 GiB a core and no GPU.
    """
    short = name.upper().removeprefix("STANDARD_")
    if short in SIZES:
        return SIZES[short]
    found = re.search(r"\d+", short)
    cores = max(1, int(found[0])) if found else 1
    return VmSize(f"STANDARD_{short}", cores, 0, int(cores * 3.5 * 2**30))


def family(name: str) -> str:
    """Returns the family of a VM size as quotas name it, such as ``"NCv2"`` of ``STANDARD_NC6S_V2``."""
    found = re.match(r"([A-Z]+?)S?\d+[A-Z]*(?:_V(\d))?$", name.upper().removeprefix("STANDARD_"))
    if not found:
        return ""
    return f"{found[1]}v{found[2]}" if found[2] else found[1]
