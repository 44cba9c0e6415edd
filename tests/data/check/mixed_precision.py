"""Mixed precision with train_on_batch: right."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np

keras.mixed_precision.set_global_policy("mixed_float16")
keras.utils.set_random_seed(11)
x = np.random.default_rng(hvd.rank()).normal(size=(64, 8)).astype("float32")
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())))
model.compile(optimizer=optimizer, loss="mse")
for first in range(0, len(x), 16):
    loss = model.train_on_batch(x[first : first + 16], x[first : first + 16, :1])
if hvd.rank() == 0:
    print("loss", loss)
