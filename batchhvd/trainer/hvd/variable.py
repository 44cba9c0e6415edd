"""Values of Keras variables as arrays, on any backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import keras

    from batchhvd.trainer.hvd.binding import Tensor


def as_array(variable: keras.Variable | Tensor) -> np.ndarray:
    """Returns the value of a variable or tensor as a numpy array."""
    import keras

    # The value, not the variable: numpy warns about the way variables convert themselves to arrays.
    array: np.ndarray = np.asarray(keras.ops.convert_to_numpy(getattr(variable, "value", variable)))
    return array
