"""Everything is there but the broadcast, and the GPUs are not shared out."""
import keras
import numpy as np

import batchhvd.trainer.hvd as hvd

hvd.init()  # finding: gpu-not-pinned
x = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), loss="mse")
model.fit(x, x[:, :1], batch_size=16, verbose=0)  # finding: no-broadcast
