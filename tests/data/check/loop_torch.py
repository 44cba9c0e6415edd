"""A custom loop of Keras 3 on PyTorch with the distributed optimizer: right."""
import os

os.environ["KERAS_BACKEND"] = "torch"
from batchhvd.trainer import backend

backend.prepare()
import keras
import torch

from batchhvd.trainer import hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01 * hvd.size()))
optimizer.build(model.trainable_variables)
hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)
for number in range(4):
    model.zero_grad()
    loss = (model(torch.rand(8, 8), training=True) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        optimizer.apply([v.value.grad for v in model.trainable_variables], model.trainable_variables)
if hvd.rank() == 0:
    print("loss", float(loss))
