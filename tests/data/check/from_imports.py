"""Names imported one by one: right."""
from batchhvd.trainer.backend import prepare

prepare()
import numpy as np
from keras import Sequential
from keras.layers import Dense, Input
from keras.optimizers import SGD

from batchhvd.trainer.hvd import DistributedOptimizer, init, rank, size
from batchhvd.trainer.hvd.callbacks import BroadcastGlobalVariablesCallback, MetricAverageCallback

init()
x = np.ones((64, 4), "float32")[rank() :: size()]
model = Sequential([Input((4,)), Dense(1)])
model.compile(DistributedOptimizer(SGD(0.01 * size())), "mse")
model.fit(x, x[:, :1], verbose=0, callbacks=[BroadcastGlobalVariablesCallback(0), MetricAverageCallback()])
if rank() == 0:
    print("done")
