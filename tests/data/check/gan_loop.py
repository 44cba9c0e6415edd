"""Two networks and two optimizers in a loop, of which one is wrapped."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np
import tensorflow as tf


def build(inputs, outputs):
    inner = keras.Input((inputs,))
    return keras.Model(inner, keras.layers.Dense(outputs)(inner))


x = np.random.default_rng(hvd.rank()).normal(size=(32, 4)).astype("float32")
encoder, decoder = build(4, 2), build(2, 4)
encoder_optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()))
decoder_optimizer = keras.optimizers.SGD(0.01 * hvd.size())
hvd.broadcast_variables([*encoder.variables, *decoder.variables], root_rank=0)
for step in range(4):
    with tf.GradientTape(persistent=True) as tape:
        loss = keras.ops.mean((decoder(encoder(x)) - x) ** 2)
    encoder_optimizer.apply_gradients(zip(tape.gradient(loss, encoder.trainable_variables), encoder.trainable_variables))
    decoder_optimizer.apply_gradients(  # finding: not-wrapped
        zip(tape.gradient(loss, decoder.trainable_variables), decoder.trainable_variables)
    )
