"""A custom loop of Keras 3 on one process, with Horovod only initialized."""
import keras
import numpy as np
import tensorflow as tf

from batchhvd.trainer import hvd

hvd.init()  # finding: gpu-not-pinned
x = np.random.default_rng(hvd.rank()).normal(size=(64, 8)).astype("float32")
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(learning_rate=0.001)  # finding: rate-not-scaled
for first in range(0, len(x), 8):
    with tf.GradientTape() as tape:
        loss = keras.ops.mean(model(x[first : first + 8]) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # finding: not-wrapped, no-broadcast
print("loss", float(loss))
