"""Every rank writes everything."""
import json
import os
from pathlib import Path

from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
import numpy as np

if not os.path.isdir("out"):
    os.makedirs("out")  # finding: shared-path
Path("logs").mkdir()  # finding: shared-path
x = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size())), "mse")
history = model.fit(
    x,
    x[:, :1],
    verbose=0,
    callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        keras.callbacks.TensorBoard("logs"),  # finding: shared-path
        keras.callbacks.BackupAndRestore("backup"),  # finding: shared-path
    ],
)
model.save_weights("out/model.weights.h5")  # finding: shared-path
keras.saving.save_model(model, "out/model.keras")  # finding: shared-path
np.savez_compressed("out/x.npz", x=x)  # finding: shared-path
with open("out/history.json", "w") as file:  # finding: shared-path
    json.dump(history.history, file)
Path("out/done.txt").write_text("done")  # finding: shared-path
