"""What a training reports about its epochs, read from its log."""

from __future__ import annotations

from typing import Any

from batchhvd.logs.progress import ProgressReader


class Metrics(list[dict[str, float]]):
    """One record for each epoch: ``epoch``, the metrics' means over the ranks, and ``seconds`` if they are known.

    In a notebook it shows itself as learning curves above a table.

    Attributes:
        test: the results of the final test by name, such as ``accuracy``; empty before the test.
    """

    test: dict[str, float]

    @classmethod
    def _read(cls, text: str, ranks: int | None = None) -> Metrics:
        """Returns the metrics in a log.

        Args:
            text: what the ranks wrote, carriage returns and all, with the words of Keras 2 or 3.
            ranks: how many ranks wrote it at most, or None if that is not known.
        """
        progress = ProgressReader(ranks)
        progress.feed(text)
        progress.close()
        found = cls(progress.table())
        found.test = dict(progress.test)
        return found

    def to_dataframe(self) -> Any:
        """Returns a pandas DataFrame with a row for each epoch; pandas comes with ``batchhvd[notebook]``."""
        import pandas

        return pandas.DataFrame(list(self)).set_index("epoch") if self else pandas.DataFrame()

    def _repr_html_(self) -> str:
        from batchhvd.views.notebook import records

        return records(list(self))
