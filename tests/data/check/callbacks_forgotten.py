"""The printed tutorial's fault: callbacks are made, and fit does not get them."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np

x = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), "mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]  # finding: callbacks-not-passed
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.CSVLogger("log.csv"))
model.fit(x, x[:, :1], verbose=0)  # finding: callbacks-not-passed
