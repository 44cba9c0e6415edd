"""Keras 2 on request, with Horovod's own binding: what Keras 3 has removed is still there."""
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
x = np.random.default_rng(hvd.rank()).normal(size=(64, 8)).astype("float32")
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.legacy.Adam(lr=0.001 * hvd.size()))
model.compile(optimizer=optimizer, loss="mse", experimental_run_tf_function=False)
model.fit(x, x[:, :1], verbose=0, workers=2, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
if hvd.rank() == 0:
    print("rate", float(optimizer.lr))
