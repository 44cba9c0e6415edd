"""The changes that Horovod 0.28.1 needs to build with today's frameworks, and to build fast.

Each change names the text that it expects. If a text is missing or occurs twice, the source is not the one for which
these changes were made, and nothing is built from it.

Tried with TensorFlow 2.21, PyTorch 2.13 and gcc 12.
"""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

from attrs import frozen

from batchhvd.errors import HorovodBrokenError

VERSION = "0.28.1"
#: SHA-256 of the source archive of that version.
ARCHIVE = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"


@frozen
class Edit:
    """One replacement in one file.

    Attributes:
        file: below the source's folder.
        old: the text that must occur exactly once.
        new: its replacement.
        why: the reason, for porting the changes to another version.
    """

    file: str
    old: str
    new: str
    why: str


EDITS = (
    Edit(
        "horovod/tensorflow/xla_mpi_ops.cc",
        '#if TENSORFLOW_VERSION >= 2006000000\n\n#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"',
        '#if 0\n\n#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"',
        "TensorFlow moved the XLA headers; the XLA operations are off by default",
    ),
    Edit(
        "horovod/torch/CMakeLists.txt",
        "set(CMAKE_CXX_STANDARD 14)",
        "set(CMAKE_CXX_STANDARD 17)",
        "PyTorch's headers need C++17 since 2.1",
    ),
    Edit(
        "CMakeLists.txt",
        "set(CMAKE_CXX_STANDARD 14)",
        "set(CMAKE_CXX_STANDARD 17)",
        "one standard for all parts, so that both frameworks can link the same objects",
    ),
    Edit(
        "third_party/gloo/CMakeLists.txt",
        "-std=c++11",
        "-std=c++17",
        "one gloo for both frameworks instead of a second copy for TensorFlow",
    ),
    Edit(
        "horovod/tensorflow/CMakeLists.txt",
        "set(Tensorflow_CXX17 TRUE)",
        "set(Tensorflow_CXX17 FALSE)",
        "the second copy of gloo is not needed once the first is C++17",
    ),
    Edit(
        "CMakeLists.txt",
        'string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")',
        'set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g0 -DNDEBUG")',
        "debug information doubles the time and multiplies the size",
    ),
    Edit(
        "CMakeLists.txt",
        "# TF\nadd_subdirectory(horovod/tensorflow)",
        'if("$ENV{HOROVOD_SHARED_COMMON}" STREQUAL "1")\n'
        "    add_library(horovod_common OBJECT ${SOURCES})\n"
        "    target_include_directories(horovod_common PRIVATE ${EIGEN_INCLUDE_PATH} ${FLATBUFFERS_INCLUDE_PATH})\n"
        "    set(SOURCES $<TARGET_OBJECTS:horovod_common>)\n"
        "endif()\n"
        "# TF\nadd_subdirectory(horovod/tensorflow)",
        "what does not depend on the framework is compiled once, not once for each framework",
    ),
    Edit(
        "horovod/common/gloo/gloo_controller.cc",
        "  global_ranks_.reserve(size_);",
        "  global_ranks_.resize(size_);",
        "over gloo the list of ranks stayed empty, so ranks that others wait for were never named",
    ),
)


def fingerprint() -> str:
    """Returns eight hex digits that change with the source or with any change to it."""
    text = "\0".join((ARCHIVE, *(part for edit in EDITS for part in (edit.file, edit.old, edit.new))))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks the source archive, changed as needed, and returns the source's folder.

    Raises:
        HorovodBrokenError: The archive is not that of Horovod 0.28.1.
    """
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != ARCHIVE:
        raise HorovodBrokenError(
            f"{archive} is not the source of Horovod {VERSION}: its SHA-256 is {found}, expected {ARCHIVE}; "
            "remove the file and try again",
            found=found,
            remedy=f"rm {archive}",
        )
    with tarfile.open(archive) as tar:
        _extract(tar, folder)
    source = folder / f"horovod-{VERSION}"
    for edit in EDITS:
        change(source, edit)
    return source


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    # The checksum was verified, so the content is known; early releases of Python 3.10 have no filters.
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
    else:
        tar.extractall(folder)


def change(source: Path, edit: Edit) -> None:
    """Makes one change in the source in a folder.

    Raises:
        HorovodBrokenError: The expected text does not occur exactly once.
    """
    path = source / edit.file
    text = path.read_text()
    count = text.count(edit.old)
    if count != 1:
        raise HorovodBrokenError(
            f"{edit.file} contains the expected text {count} times instead of once ({edit.why}): this is not Horovod "
            f"{VERSION} as it was published, and nothing was built",
            found=str(path),
            remedy=f"pip download --no-deps --no-binary :all: horovod=={VERSION}",
        )
    path.write_text(text.replace(edit.old, edit.new))
