"""Local rank 0 downloads first, and a file is fetched by all."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras

if hvd.local_rank() == 0:
    keras.datasets.mnist.load_data()
hvd.barrier()
(x, y), _ = keras.datasets.mnist.load_data()
words = keras.utils.get_file("words.txt", origin="file:///etc/hostname")  # finding: every-rank-downloads
x, y = x[hvd.rank() :: hvd.size()] / 255.0, y[hvd.rank() :: hvd.size()]
model = keras.Sequential([keras.layers.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), loss)
model.fit(x, y, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)], verbose=0)
