"""Paths and arguments that Keras 3 refuses."""
import os

from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np

x = np.ones((32, 4), "float32")[hvd.rank() :: hvd.size()]
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1), keras.layers.BatchNormalization()])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), "mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint("weights-{epoch}"))  # finding: removed-api
    callbacks.append(keras.callbacks.ModelCheckpoint("w.h5", save_weights_only=True))  # finding: removed-api
    callbacks.append(keras.callbacks.ModelCheckpoint("best.keras", period=2))  # finding: removed-api
    callbacks.append(keras.callbacks.ModelCheckpoint("fine.h5", save_best_only=True, monitor="loss"))
model.fit(x, x[:, :1], callbacks=callbacks, verbose=0)
if hvd.rank() == 0:
    model.save("saved_model")  # finding: removed-api
    model.save(os.path.join("models", "last"))  # finding: removed-api
    model.save_weights("weights.h5")  # finding: removed-api
    model.save("old.h5")
    model.save("new.keras")
