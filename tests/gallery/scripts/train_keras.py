"""A training in Keras on one node."""

import keras
import numpy as np

x = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
y = (x.sum(axis=1) > 0).astype("int32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)])
model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"])
accuracy = model.fit(x, y, epochs=6, verbose=0).history["accuracy"][-1]
assert accuracy > 0.9, accuracy
print(f"trained: accuracy {accuracy:.3f}")
