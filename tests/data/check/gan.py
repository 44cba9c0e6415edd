"""A GAN with its own train_step and two wrapped optimizers: right."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np
import tensorflow as tf


class GAN(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    def train_step(self, real):
        noise = tf.random.normal((tf.shape(real)[0], 4))
        with tf.GradientTape() as tape:
            fake = self.discriminator(self.generator(noise))
            d_loss = self.loss_fn(tf.ones_like(fake), self.discriminator(real)) + self.loss_fn(tf.zeros_like(fake), fake)
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights))
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(tf.ones_like(fake), self.discriminator(self.generator(noise)))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights))
        return {"d_loss": d_loss, "g_loss": g_loss}


def network(inputs, outputs):
    return keras.Sequential([keras.layers.Input((inputs,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(outputs)])


real = np.random.default_rng(hvd.rank()).normal(size=(64, 2)).astype("float32")
gan = GAN(network(2, 1), network(4, 2))
gan.compile(
    d_optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.0003 * hvd.size())),
    g_optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.0003 * hvd.size())),
    loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
gan.fit(real, batch_size=16, epochs=2, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)
