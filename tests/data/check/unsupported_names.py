"""Names of Horovod that the binding for Keras 3 refuses."""
import keras
import numpy as np

import batchhvd.trainer.hvd as hvd
from batchhvd.trainer import backend
from batchhvd.trainer.hvd import Adasum  # finding: unsupported-name

backend.prepare()
hvd.init()
x = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
model = keras.Sequential([keras.layers.Input((4,)), hvd.SyncBatchNormalization(), keras.layers.Dense(1)])  # finding: unsupported-name
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()))
other = hvd.PartialDistributedOptimizer(optimizer, local_layers=[])  # finding: unsupported-name
model.compile(optimizer, "mse")
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.BestModelCheckpoint(monitor="loss"),  # finding: unsupported-name
]
model.fit(x, x[:, :1], callbacks=callbacks, verbose=0)
hvd.join()  # finding: unsupported-name
