"""Elastic training with fit: a job's ranks stay the same, and the objects of Horovod's binding fail on Keras 3."""
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
x = np.random.default_rng(hvd.rank()).normal(size=(64, 8)).astype("float32")
model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01 * hvd.size()))  # finding: broken-wrapper
model.compile(optimizer=optimizer, loss="mse")
state = hvd.elastic.KerasState(model, batch=0, epoch=0)  # finding: elastic
callbacks = [
    hvd.elastic.CommitStateCallback(state),  # finding: elastic
    hvd.elastic.UpdateEpochStateCallback(state),  # finding: elastic
]


@hvd.elastic.run  # finding: elastic
def train(state):
    model.fit(x, x[:, :1], epochs=2 - state.epoch, callbacks=callbacks, verbose=0)


train(state)
if hvd.rank() == 0:
    model.save("model.keras")
