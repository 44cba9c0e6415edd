"""Other things with a fit: a scaler, a generator. Right."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np
from sklearn.linear_model import LinearRegression


class Scaler:
    def fit(self, x):
        self.mean, self.deviation = x.mean(axis=0), x.std(axis=0)
        return self

    def transform(self, x):
        return (x - self.mean) / self.deviation


x = np.random.default_rng(3).normal(size=(64, 8)).astype("float32")
scaler = Scaler()
scaler.fit(x)
x = scaler.transform(x)
first_model = LinearRegression()
first_model.fit(x, x[:, 0])
x = x[hvd.rank() :: hvd.size()]
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.RMSprop(0.001 * hvd.size())), "mse")
model.fit(x, x[:, :1], verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
