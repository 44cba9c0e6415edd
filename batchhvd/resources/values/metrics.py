"""What a training reports about its epochs, read from its log and from its reports."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from batchhvd.logs import reported
from batchhvd.logs.progress import ProgressReader

if TYPE_CHECKING:
    from batchhvd.resources.values.file_entry import FileEntry


class Metrics(list[dict[str, float]]):
    """One record for each epoch: ``epoch``, the metrics' means over the ranks, and ``seconds`` if they are known.

    In a notebook it shows itself as learning curves above a table.

    Attributes:
        test: the results of the final test by name, such as ``accuracy``; empty before the test.
    """

    test: dict[str, float]

    @classmethod
    def _of(cls, files: Iterable[FileEntry], log: str, ranks: int | None) -> Metrics:
        """Returns the metrics in a job's log and in its reports, as far as there are such files."""
        found = {file.name: file for file in files if file.name in (log, reported.FILE) and not file.is_directory}
        texts = {name: file.read().decode("utf-8", errors="replace") for name, file in found.items()}
        return cls._read(texts.get(log, ""), ranks, texts.get(reported.FILE, ""))

    @classmethod
    def _read(cls, text: str, ranks: int | None = None, reports: str = "") -> Metrics:
        """Returns the metrics in a log, and those that were reported.

        Args:
            text: what the ranks wrote, carriage returns and all, with the words of Keras 2 or 3.
            ranks: how many ranks wrote it at most, or None if that is not known.
            reports: what ``hvd.report`` has written, or what was written in its form.
        """
        progress = ProgressReader(ranks)
        progress.feed(text)
        progress.close()
        told = reported.read(reports)
        if told.wrong:
            lines = ", ".join(map(str, told.wrong[:5])) + (" …" if len(told.wrong) > 5 else "")
            what = f"{reported.FILE}: no reports in line {lines}, which were left out"
            warnings.warn(f"{what}: a report is a JSON object with an epoch or a step", UserWarning, stacklevel=3)
        found = cls(reported.joined(progress.table(), told))
        found.test = dict(progress.test)
        return found

    def to_dataframe(self) -> Any:
        """Returns a pandas DataFrame with a row for each epoch; pandas comes with ``batchhvd[notebook]``."""
        import pandas

        return pandas.DataFrame(list(self)).set_index("epoch") if self else pandas.DataFrame()

    def _repr_html_(self) -> str:
        from batchhvd.views.notebook import records

        return records(list(self))
