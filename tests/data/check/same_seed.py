"""The same first weights on all ranks by a seed: no broadcast is needed. Right."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np

keras.utils.set_random_seed(1234)
batch = 64 // hvd.size()
x = np.random.default_rng(5).normal(size=(256, 4)).astype("float32")[hvd.rank() :: hvd.size()]
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
model.fit(x, x[:, :1], batch_size=batch, verbose=0)
