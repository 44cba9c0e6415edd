"""A schedule of the rate that does not know how many ranks there are, and epochs divided by them."""
import tensorflow as tf

from batchhvd.trainer import hvd

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
images = tf.constant([[0.0] * 8] * 64)
schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=100, decay_rate=0.9)
optimizer = tf.keras.optimizers.SGD(learning_rate=schedule)  # finding: rate-not-scaled
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(optimizer), loss="mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(images, images[:, :1], epochs=4 // hvd.size(), callbacks=callbacks, verbose=0)  # finding: not-sharded
