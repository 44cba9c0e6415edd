"""Augmentation with a generator, warm-up and a schedule of the rate, as the longer example of 2019 has them."""
import horovod.keras as hvd
import keras
import numpy as np
import tensorflow as tf
from keras.datasets import mnist
from keras.preprocessing.image import ImageDataGenerator  # finding: removed-api

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

batch_size = 128
(x_train, y_train), (x_test, y_test) = mnist.load_data("mnist-%d.npz" % hvd.rank())
x_train, x_test = x_train.reshape(-1, 28, 28, 1), x_test.reshape(-1, 28, 28, 1)
train_gen = ImageDataGenerator(rotation_range=8, width_shift_range=0.08)
test_gen = ImageDataGenerator()

model = keras.models.Sequential(
    [keras.layers.Flatten(input_shape=(28, 28, 1)), keras.layers.Dense(10, activation="softmax")]
)
opt = hvd.DistributedOptimizer(keras.optimizers.Adadelta(lr=1.0 * hvd.size()))  # finding: broken-wrapper, removed-api
model.compile(loss="sparse_categorical_crossentropy", optimizer=opt, metrics=["accuracy"])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=1.0 * hvd.size(), warmup_epochs=5, verbose=1),
    keras.callbacks.ReduceLROnPlateau(patience=10, verbose=1),
]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint("./checkpoint-{epoch}.h5"))

train_batches = len(x_train) // batch_size
test_batches = len(x_test) // batch_size
model.fit_generator(  # finding: removed-api
    train_gen.flow(x_train, y_train, batch_size=batch_size),
    steps_per_epoch=train_batches // hvd.size(),
    callbacks=callbacks,
    epochs=24,
    verbose=1 if hvd.rank() == 0 else 0,
    workers=4,
    validation_data=test_gen.flow(x_test, y_test, batch_size=batch_size),
    validation_steps=3 * test_batches // hvd.size(),
)
score = hvd.allreduce(model.evaluate_generator(test_gen.flow(x_test, y_test)))  # finding: removed-api
if hvd.rank() == 0:
    print("Test loss:", np.asarray(score)[0])
