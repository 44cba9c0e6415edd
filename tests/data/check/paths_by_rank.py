"""A path of its own for each rank: right."""
import os
import tempfile

from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np

(images, labels), _ = keras.datasets.mnist.load_data(path=f"mnist-{hvd.rank()}.npz")
folder = tempfile.mkdtemp()
images, labels = images[hvd.rank() :: hvd.size()] / 255.0, labels[hvd.rank() :: hvd.size()]
model = keras.Sequential([keras.layers.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()))
model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    keras.callbacks.CSVLogger("log-%d.csv" % hvd.rank()),
]
model.fit(images, labels, callbacks=callbacks, verbose=0)
name = "rank%d" % hvd.rank()
model.save(os.path.join(folder, "model.keras"))
np.savez(name + ".npz", weights=model.get_weights()[0])
os.makedirs("shared", exist_ok=True)
with open(f"shared/{name}.txt", "w") as file:
    file.write("done")
