"""A model with its own train_step that calls super().compile: right."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np
import tensorflow as tf


class Regression(keras.Model):
    def __init__(self, units):
        super().__init__()
        self.layer = keras.layers.Dense(units)

    def call(self, x):
        return self.layer(x)

    def compile(self, optimizer, **options):
        super().compile(optimizer=optimizer, **options)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        return {"loss": loss}


def optimizer_for(rate):
    return hvd.DistributedOptimizer(keras.optimizers.Adam(rate))


def train(model, x, callbacks):
    model.compile(optimizer=optimizer_for(0.01 * hvd.size()), loss="mse")
    return model.fit(x, x[:, :1], callbacks=callbacks, verbose=0)


x = np.random.default_rng(hvd.rank()).normal(size=(64, 8)).astype("float32")
train(Regression(1), x, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
