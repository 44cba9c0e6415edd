"""The networks: the tutorial's, and a small one without residuals that learns CIFAR-10 in seconds.

Both take pictures with values from 0 to 1 and return probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras
    import numpy as np
    from numpy.typing import NDArray

    from batchhvd.trainer.hvd.binding import Tensor


def tutorial(shape: Sequence[int], classes: int) -> keras.Model:
    """Builds the tutorial's network: four convolutions, two dense layers, 1,250,858 weights for 32×32×3 and 10 classes.

    Source: the printed script of the tutorial, layer by layer. Only the type of the softmax is added: it stays in
    float32 when the rest of the network computes in bfloat16.

    Args:
        shape: height, width and channels of a picture; height and width at least 14.
        classes: number of labels.
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


def fast(shape: Sequence[int], classes: int, widths: Sequence[int] = (64, 256, 256), depth: int = 2) -> keras.Model:
    """Builds a network that learns CIFAR-10 in seconds on a GPU: a whitening layer and three groups of convolutions.

    Set the first layer with :func:`whiten`. Source of the idea: Jordan, "94% on CIFAR-10 in 3.29 seconds
    on a single GPU", arXiv 2404.00498, sections 2 and 3; layers and numbers here are our own choice.

    Args:
        shape: height, width and channels of a picture; height and width at least 18.
        classes: number of labels.
        widths: channels of the three groups.
        depth: convolutions of a group; the last two of three are a residual block.
    """
    from keras import Input, Model
    from keras.initializers import HeUniform, RandomNormal
    from keras.layers import Activation, Conv2D, Dense, Flatten, MaxPooling2D, Rescaling

    inputs = Input(tuple(shape))  # (B, 32, 32, 3)
    whitened = 2 * WHITENING**2 * shape[-1]
    x = Conv2D(whitened, WHITENING, name="whitening")(inputs)  # (B, 31, 31, 24)
    x = Activation("gelu")(x)
    for width in widths:
        x = _group(x, width, depth)  # (B, 15, 15, 64), (B, 7, 7, 256), (B, 3, 3, 256)
    x = Flatten()(MaxPooling2D(x.shape[1:3])(x))  # (B, 512)
    x = Dense(classes, use_bias=False, kernel_initializer=RandomNormal(stddev=HEAD), name="head")(x)  # (B, classes)
    x = Rescaling(LOGIT_SCALE)(x)
    model = Model(inputs, Activation("softmax", dtype="float32")(x), name="fast")
    for layer in model.layers:  # the weights exist: a saved model names an initializer that every Keras knows
        if isinstance(layer, Conv2D) and layer.kernel_initializer is _passing:
            layer.kernel_initializer = HeUniform()
    return model


WHITENING = 2  # side of the patches whose pixels are made independent
LOGIT_SCALE = 1 / 9
HEAD = 0.035  # deviation of the last layer's first weights: the first predictions are nearly even
BN_EPSILON = 1e-3  # with 1e-5, channels that grey pictures hardly excite made training diverge in bfloat16


def _group(x: keras.KerasTensor, width: int, depth: int) -> keras.KerasTensor:
    from keras.layers import Activation, Add, MaxPooling2D

    x = MaxPooling2D(2)(_convolution(x, width))
    x = entered = Activation("gelu")(_normalization(x))
    for last in [False] * (depth - 2) + [True]:
        x = _normalization(_convolution(x, width))
        x = Add()([x, entered]) if last and depth > 2 else x
        x = Activation("gelu")(x)
    return x


def _convolution(x: keras.KerasTensor, width: int) -> keras.KerasTensor:
    from keras.layers import Conv2D

    return Conv2D(width, 3, padding="same", use_bias=False, kernel_initializer=_passing)(x)


def _normalization(x: keras.KerasTensor) -> keras.KerasTensor:
    from keras.layers import BatchNormalization

    return BatchNormalization(scale=False, momentum=0.6, epsilon=BN_EPSILON)(x)


def _passing(shape: Sequence[int], dtype: str | None = None) -> Tensor:
    """Initializes a convolution so that its first filters pass their input on and the others are random."""
    import keras
    import numpy as np

    kernel = keras.ops.convert_to_numpy(
        keras.initializers.HeUniform()(shape, dtype="float32")
    ).copy()  # (3, 3, in, out)
    kernel *= 1 / np.sqrt(6)  # PyTorch's default range for convolutions
    same = min(shape[2], shape[3])
    kernel[:, :, :, :same] = 0
    kernel[shape[0] // 2, shape[1] // 2, range(same), range(same)] = 1
    return keras.ops.convert_to_tensor(kernel, dtype)


def whiten(network: keras.Model, images: NDArray[np.uint8], floor: float | None = None) -> None:
    """Sets the first layer of :func:`fast` so that the pixels of small patches become independent.

    Its filters are frozen. Its biases may learn.

    Args:
        network: made by :func:`fast`.
        images: uint8 (n, height, width, channels); 5,000 are enough.
        floor: what is added to the variance of each filter; None is `WHITENING_FLOOR`.
    """
    import numpy as np

    windows: Callable[..., np.ndarray] = np.lib.stride_tricks.sliding_window_view  # numpy 2.2 declares one axis only
    patches = windows(images / np.float32(255), (WHITENING, WHITENING), axis=(1, 2))
    flat = patches.transpose(0, 1, 2, 4, 5, 3).reshape(-1, WHITENING**2 * images.shape[-1])  # (n·31·31, 12)
    mean = flat.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(flat, rowvar=False))
    filters = vectors / np.sqrt(
        values + (WHITENING_FLOOR if floor is None else floor)
    )  # (12, 12), one filter per column
    both = np.concatenate([filters, -filters], axis=1)  # (12, 24)
    layer = network.get_layer("whitening")
    layer.set_weights([both.reshape(layer.kernel.shape), -mean @ both])
    layer.kernel.trainable = False


WHITENING_FLOOR = 5e-4
