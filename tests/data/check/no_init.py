"""Horovod is imported and never initialized."""  # finding: no-init
import keras
import numpy as np

from batchhvd.trainer import backend, hvd

backend.prepare()
x = np.ones((32, 4), "float32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")  # finding: rate-not-scaled
model.fit(x, x[:, :1], verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])  # finding: not-sharded
