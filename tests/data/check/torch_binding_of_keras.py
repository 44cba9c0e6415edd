"""Keras on PyTorch with horovod.torch, whose optimizer takes only those of PyTorch."""
import os

os.environ["KERAS_BACKEND"] = "torch"
import horovod.torch as hvd
import keras
import numpy as np
import torch

hvd.init()
if torch.cuda.is_available():
    torch.cuda.set_device(hvd.local_rank())
x = np.random.default_rng(hvd.rank()).normal(size=(64, 8)).astype("float32")
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()))  # finding: broken-binding
model.compile(optimizer, "mse")
model.fit(x, x[:, :1], verbose=0)
