"""Keras on one process; everything for several ranks is missing."""  # finding: no-horovod
import keras
import numpy as np

(x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()  # finding: every-rank-downloads
x_train, x_test = x_train / 255.0, x_test / 255.0
print("images:", len(x_train))  # finding: prints-everywhere
model = keras.Sequential(
    [
        keras.layers.Input((28, 28)),
        keras.layers.Flatten(),
        keras.layers.Dense(16, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.summary()  # finding: prints-everywhere
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])  # finding: not-wrapped
model.fit(x_train, y_train, batch_size=64, epochs=2)  # finding: no-broadcast, not-sharded, bars-everywhere
test_loss, test_acc = model.evaluate(x_test, y_test)  # finding: bars-everywhere
print("accuracy:", test_acc)  # finding: prints-everywhere
model.save("digits.keras")  # finding: shared-path
np.save("accuracy.npy", test_acc)  # finding: shared-path
