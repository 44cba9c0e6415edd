"""Names of Keras 2 and TensorFlow 1, each at its place."""
from batchhvd.trainer import backend, hvd

backend.prepare()
hvd.init()
import tensorflow as tf
from keras import backend as K
from keras.layers.advanced_activations import LeakyReLU  # finding: removed-api
from keras.layers.core import Dense  # finding: removed-api
from keras.layers.normalization import BatchNormalization  # finding: removed-api
from keras.models import Sequential
from keras.preprocessing.text import Tokenizer  # finding: removed-api
from keras.utils import np_utils  # finding: removed-api
from tensorflow.keras.layers.experimental import preprocessing  # finding: removed-api

tf.set_random_seed(1)  # finding: removed-api
labels = np_utils.to_categorical([0, 1, 2])
model = Sequential([Dense(4), LeakyReLU(), BatchNormalization()])
K.set_value(model.weights[0], 0.0)  # finding: removed-api
if hvd.rank() == 0:
    print(tf.to_float(labels), preprocessing, Tokenizer)  # finding: removed-api
