"""Attributes and methods of Keras 2."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np


class Decay(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.optimizer.lr.assign(0.1 / (epoch + 1))  # finding: removed-api


x = np.ones((32, 4), "float32")[hvd.rank() :: hvd.size()]
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2, activation="softmax")])
base = keras.optimizers.Adam(learning_rate=0.001 * hvd.size(), decay=1e-6)  # finding: removed-api
optimizer = hvd.DistributedOptimizer(base)
model.compile(optimizer=optimizer, loss="mse", sample_weight_mode=None)  # finding: removed-api
model.fit(
    x,
    x[:, :2],
    epochs=2,
    workers=2,  # finding: removed-api
    use_multiprocessing=True,  # finding: removed-api
    verbose=0,
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), Decay()],
)
if hvd.rank() == 0:
    print("rate", optimizer.lr)  # finding: removed-api
    print("state", len(optimizer.variables()), optimizer.get_weights())  # finding: removed-api, removed-api
    print(model.predict_classes(x))  # finding: removed-api
    print(model.to_yaml())  # finding: removed-api
