"""The TF2 example with a tape after its import was changed: right."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np
import tensorflow as tf

images = np.random.default_rng(hvd.rank()).normal(size=(64, 8)).astype("float32")
labels = (images.sum(axis=1) > 0).astype("int32")
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().batch(16)
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(2, activation="softmax")])
loss = keras.losses.SparseCategoricalCrossentropy()
opt = keras.optimizers.Adam(0.001 * hvd.size())
opt.build(model.trainable_variables)
hvd.broadcast_variables([*model.variables, *opt.variables], root_rank=0)


@tf.function
def training_step(images, labels):
    with tf.GradientTape() as tape:
        loss_value = loss(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    grads = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))
    return loss_value


for batch, (images, labels) in enumerate(dataset.take(8)):
    loss_value = training_step(images, labels)
    if batch % 4 == 0 and hvd.rank() == 0:
        print("Step", batch, "loss", float(loss_value))
