"""One call of the trainer's fit: it wraps, broadcasts, shares the data, and writes on rank 0. Right."""
from batchhvd.trainer import backend

backend.prepare()
import keras
import numpy as np

from batchhvd.trainer import hvd
from batchhvd.trainer.fitting import fit

x = np.random.default_rng(0).normal(size=(128, 8)).astype("float32")
y = (x.sum(axis=1) > 0).astype("int32")
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(2, activation="softmax")])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
result = fit(
    model, (x, y), validation=(x, y), epochs=2, batch_size=16, callbacks=[keras.callbacks.ModelCheckpoint("best.keras")]
)
if hvd.rank() == 0:
    print(result.metrics)
