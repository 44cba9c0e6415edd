"""The trainer: Keras 3 on Horovod. It runs on the nodes and needs neither the client nor the service.

:func:`fit` is loaded on first use, so that settings which must precede the import of Keras can still be made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchhvd.trainer.fitting import Fit, fit

__all__ = ["Fit", "fit"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from batchhvd.trainer import fitting

    return getattr(fitting, name)
