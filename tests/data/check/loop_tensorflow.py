"""A custom loop of Keras 3 on TensorFlow with the distributed optimizer: right."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np
import tensorflow as tf

x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")[hvd.rank() :: hvd.size()]
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size()))
optimizer.build(model.trainable_variables)
hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = keras.ops.mean(model(x, training=True) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


for first in range(0, len(x), 8):
    loss = step(x[first : first + 8])
if hvd.rank() == 0:
    print("loss", float(loss))
    model.save("model.keras")
