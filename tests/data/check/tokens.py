"""Text in the words of keras.preprocessing that are still there: right."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import keras
from keras.preprocessing import sequence
from keras.preprocessing.image import img_to_array
from keras.preprocessing.sequence import pad_sequences

tokens = pad_sequences([[1, 2, 3], [4, 5]] * 16, maxlen=4)
assert sequence.pad_sequences is pad_sequences and img_to_array is not None
tokens = tokens[hvd.rank() :: hvd.size()]
model = keras.Sequential([keras.layers.Embedding(10, 4), keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size())), "mse")
model.fit(tokens, tokens[:, 0], verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
