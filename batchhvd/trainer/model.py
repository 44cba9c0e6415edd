"""The networks: the tutorial's own, and a small residual-free one that learns CIFAR-10 in seconds.

Both take pictures from 0 to 1 and give probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def tutorial(shape: Sequence[int], classes: int) -> Any:
    """Builds the tutorial's network: four convolutions, two dense layers, 1,250,858 weights for 32×32×3 and 10 classes.

    Source: the printed script of the tutorial, layer by layer. Only the softmax's type is said here: it stays in
    float32 when the rest of the network computes in bfloat16.

    Args:
        shape: height, width and channels of a picture; height and width at least 14.
        classes: how many labels there are.
    """
    from keras import Input, Sequential
    from keras.layers import Activation, Conv2D, Dense, Dropout, Flatten, MaxPooling2D

    return Sequential(
        [
            Input(tuple(shape)),  # (B, 32, 32, 3)
            Conv2D(32, (3, 3), padding="same"),  # (B, 32, 32, 32)
            Activation("relu"),
            Conv2D(32, (3, 3)),  # (B, 30, 30, 32)
            Activation("relu"),
            MaxPooling2D(pool_size=(2, 2)),  # (B, 15, 15, 32)
            Dropout(0.25),
            Conv2D(64, (3, 3), padding="same"),  # (B, 15, 15, 64)
            Activation("relu"),
            Conv2D(64, (3, 3)),  # (B, 13, 13, 64)
            Activation("relu"),
            MaxPooling2D(pool_size=(2, 2)),  # (B, 6, 6, 64)
            Dropout(0.25),
            Flatten(),  # (B, 2304)
            Dense(512),  # (B, 512)
            Activation("relu"),
            Dropout(0.5),
            Dense(classes),  # (B, classes)
            Activation("softmax", dtype="float32"),
        ],
        name="tutorial",
    )
