"""A classifier of digits in the way of 2019: horovod.keras, a session with one visible GPU, epochs divided by the ranks."""
import math

import horovod.keras as hvd
import keras
import tensorflow as tf
from keras import backend as K
from keras.datasets import mnist
from keras.layers import Conv2D, Dense, Dropout, Flatten, MaxPooling2D
from keras.models import Sequential

hvd.init()

config = tf.ConfigProto()  # finding: removed-api
config.gpu_options.visible_device_list = str(hvd.local_rank())
K.set_session(tf.Session(config=config))  # finding: removed-api, removed-api

epochs = int(math.ceil(12.0 / hvd.size()))  # finding: not-sharded
(x_train, y_train), (x_test, y_test) = mnist.load_data()  # finding: every-rank-downloads
x_train = x_train.reshape(-1, 28, 28, 1).astype("float32") / 255
x_test = x_test.reshape(-1, 28, 28, 1).astype("float32") / 255
y_train = keras.utils.to_categorical(y_train, 10)
y_test = keras.utils.to_categorical(y_test, 10)

model = Sequential()
model.add(Conv2D(8, kernel_size=(3, 3), activation="relu", input_shape=(28, 28, 1)))
model.add(MaxPooling2D(pool_size=(2, 2)))
model.add(Dropout(0.25))
model.add(Flatten())
model.add(Dense(10, activation="softmax"))

opt = keras.optimizers.Adadelta(1.0 * hvd.size())
opt = hvd.DistributedOptimizer(opt)  # finding: broken-wrapper
model.compile(loss="categorical_crossentropy", optimizer=opt, metrics=["accuracy"])

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint("./checkpoint-{epoch}.h5"))

model.fit(  # finding: not-sharded
    x_train,
    y_train,
    batch_size=128,
    callbacks=callbacks,
    epochs=epochs,
    verbose=1 if hvd.rank() == 0 else 0,
    validation_data=(x_test, y_test),
)
score = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", score[0])  # finding: prints-everywhere
print("Test accuracy:", score[1])  # finding: prints-everywhere
