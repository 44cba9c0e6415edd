"""A dataset of which each rank takes a shard: right."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import numpy as np
import tensorflow as tf
from tensorflow import keras


def make_dataset(x, y, batch_size=8):
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    return dataset.shard(hvd.size(), hvd.rank()).shuffle(64).batch(batch_size, drop_remainder=True)


def make_model():
    return keras.models.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])


def main():
    x = np.ones((64, 4), "float32")
    model = make_model()
    rate = 0.01 * hvd.size()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(learning_rate=rate))
    model.compile(loss="mse", optimizer=optimizer)
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=1),
    ]
    history = model.fit(make_dataset(x, x[:, :1]), epochs=2, callbacks=callbacks, verbose=0)
    if hvd.rank() == 0:
        print(history.history["loss"])


if __name__ == "__main__":
    main()
