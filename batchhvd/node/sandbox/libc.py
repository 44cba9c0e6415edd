"""The C library, for the system calls that Python does not offer."""

from __future__ import annotations

import ctypes
import sys

LINUX = sys.platform.startswith("linux")
LIBC = ctypes.CDLL(None, use_errno=True)
