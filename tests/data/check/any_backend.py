"""A script for every backend of Keras: right."""
import os

os.environ.setdefault("KERAS_BACKEND", "torch")
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np
from keras import layers, ops


class Scale(layers.Layer):
    def build(self, shape):
        self.factor = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, inputs):
        return ops.multiply(inputs, self.factor)


x = np.random.default_rng(1).normal(size=(128, 8)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")
part = slice(hvd.rank(), None, hvd.size())
model = keras.Sequential([layers.Input((8,)), Scale(), layers.Dense(1, activation="sigmoid")])
optimizer = keras.optimizers.Adam(learning_rate=keras.optimizers.schedules.CosineDecay(0.01 * hvd.size(), 100))
model.compile(hvd.DistributedOptimizer(optimizer), "binary_crossentropy", metrics=["accuracy"])
history = model.fit(
    x[part],
    y[part],
    epochs=2,
    verbose=0,
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
)
if hvd.rank() == 0:
    print(history.history)
