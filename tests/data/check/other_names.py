"""Horovod and Keras under other names, as scripts that grew have them."""
import tensorflow as tf
import horovod.tensorflow.keras as horovod_keras
from tensorflow.keras import layers as L
from tensorflow.keras import optimizers as O
from tensorflow.keras.callbacks import ModelCheckpoint

horovod_keras.init()
devices = tf.config.experimental.list_physical_devices("GPU")
if devices:
    tf.config.experimental.set_visible_devices(devices[horovod_keras.local_rank()], "GPU")
is_chief = horovod_keras.rank() == 0
x = tf.random.stateless_uniform((64, 8), seed=(1, horovod_keras.rank()))
net = tf.keras.Sequential([L.Dense(4, activation="relu"), L.Dense(1)])
wrapped = horovod_keras.DistributedOptimizer(O.Adam(lr=0.001 * horovod_keras.size()))  # finding: broken-wrapper, removed-api
net.compile(wrapped, "mse")
watchers = [horovod_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
if is_chief:
    watchers.append(ModelCheckpoint("weights-{epoch}.hdf5", save_weights_only=True))  # finding: removed-api
net.fit(x, x[:, :1], callbacks=watchers, verbose=int(is_chief))
