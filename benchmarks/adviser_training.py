"""A training for benchmarks/adviser.py: ``embedding`` or ``dense``, with data made up here."""

import sys

from batchhvd.trainer import backend

backend.prepare()

import keras  # noqa: E402  the line above comes first on purpose
import numpy as np  # noqa: E402

import batchhvd.trainer.hvd as hvd  # noqa: E402

WORDS, LENGTH, BATCH = 50_000, 32, 64

hvd.init()
dice = np.random.default_rng(hvd.rank())
if sys.argv[1] == "embedding":
    x = dice.integers(0, WORDS, size=(200 * BATCH, LENGTH))
    layers = [keras.layers.Embedding(WORDS, 128), keras.layers.GlobalAveragePooling1D()]
else:
    x = dice.standard_normal((200 * BATCH, 1024), "float32")
    layers = [keras.layers.Dense(1536, activation="relu") for _ in range(3)]
y = dice.integers(0, 10, size=len(x))

model = keras.Sequential([*layers, keras.layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss=loss, jit_compile=False)
model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
