"""tf.keras on one process, in functions with a guard for main."""  # finding: no-horovod
import argparse
import os

import numpy as np
import tensorflow as tf


def load(count):
    generator = np.random.RandomState(7)
    return generator.normal(size=(count, 8)).astype("float32"), generator.randint(0, 2, size=count)


def build(rate):
    inputs = tf.keras.Input(shape=(8,))
    outputs = tf.keras.layers.Dense(2, activation="softmax")(inputs)
    model = tf.keras.Model(inputs, outputs)
    optimizer = tf.keras.optimizers.SGD(learning_rate=rate, momentum=0.9)
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])  # finding: not-wrapped
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--folder", default="models")
    options = parser.parse_args()
    x, y = load(256)
    model = build(options.rate)
    os.makedirs(options.folder)  # finding: shared-path
    callbacks = [
        tf.keras.callbacks.ModelCheckpoint(os.path.join(options.folder, "best.keras")),  # finding: shared-path
        tf.keras.callbacks.CSVLogger("log.csv"),  # finding: shared-path
    ]
    model.fit(x, y, epochs=2, callbacks=callbacks, verbose=2)  # finding: no-broadcast, not-sharded, bars-everywhere
    with open("notes.txt", "w") as notes:  # finding: shared-path
        notes.write("done")


if __name__ == "__main__":
    main()
