"""Batches from tf.data's service on rank 0: every rank takes its own from the shared queue. Right but for the binding."""
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd
from horovod.tensorflow.functions import broadcast_object

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

address = None
if hvd.rank() == 0:
    dispatcher = tf.data.experimental.service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(dispatcher_address=address)
    )
address = broadcast_object(address, root_rank=0)
images, labels = np.zeros((256, 8), "float32"), np.zeros(256, "int64")
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().batch(16)
dataset = dataset.apply(
    tf.data.experimental.service.distribute(
        processing_mode="distributed_epoch", service=f"grpc://{address}", job_name="job"
    )
)
model = tf.keras.Sequential([tf.keras.layers.Dense(10, activation="softmax")])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01 * hvd.size()))  # finding: broken-wrapper
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
verbose = 1 if hvd.rank() == 0 else 0
model.fit(dataset, steps_per_epoch=8, epochs=1, callbacks=callbacks, verbose=verbose)
