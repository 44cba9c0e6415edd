"""What lines of a rank's output mean: notices of frameworks that explain nothing, and words for a lack of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: What TensorFlow and its libraries say when they start, as warnings or as errors, on a machine where nothing is wrong.
_STARTING = (
    r"cuInit|cudart|cuda drivers|Unable to register cu\w+ (?:factory|plugin)|TensorRT|TF-TRT|oneDNN|CPU instructions|"
    r"computation placer already|Skipping registering GPU|Cannot dlopen some GPU|Could not load dynamic library|"
    r"kernel driver does not appear|no NVIDIA GPU device|NUMA node"
)
_DATED = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: "
_NOTICE = re.compile(
    r"\s*(?:\[\d+,\d+\]<std(?:err|out)>:\s*)?(?:"  # mpirun writes the rank before each line
    r"WARNING: All log messages before absl::|(?:WARNING|INFO):(?:absl|tensorflow):|"
    r"To enable the following instructions: .*rebuild TensorFlow|"
    rf"{_DATED}I |I\d{{4}} \d\d:\d\d:\d\d|"
    rf"(?:{_DATED}[WE] |[WE]\d{{4}} \d\d:\d\d:\d\d).*(?:{_STARTING})|"
    r"\[\[\{\{node )"  # the node of a graph, below the error that names it in words
)
_NO_MEMORY = re.compile(
    r"(?:\w+\.)*(?:_?(?:Array)?MemoryError|OutOfMemoryError)\b|.*std::bad_alloc|.*can't allocate memory"
)


def without_notices(lines: Iterable[str]) -> list[str]:
    """Returns lines of output without what TensorFlow, CUDA, oneDNN and absl say when they start."""
    return [line for line in lines if not _NOTICE.match(line)]


def memory_error(lines: Iterable[str]) -> str:
    """Returns the line at the end of some output by which a process says that it found no memory; "" if it does not."""
    last = without_notices(lines)[-3:]
    return next((line for line in reversed(last) if _NO_MEMORY.match(line)), "")
