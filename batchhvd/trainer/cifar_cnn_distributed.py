"""The tutorial's CIFAR-10 training, as one file to upload: Keras 3 on Horovod.

    python cifar_cnn_distributed.py --dir=out                       # one process, digits
    horovodrun -np 4 python cifar_cnn_distributed.py --dir=out --dataset=cifar10 --data-dir=data

Every line that makes it parallel is marked HOROVOD; without them it is an ordinary Keras script.
"""

import sys

from batchhvd.trainer import backend

# HOROVOD: one GPU, or one share of the cores, for each rank of a node; it must be said before Keras is imported.
backend.prepare()

import keras  # noqa: E402  the line above comes first on purpose

from batchhvd.trainer import data as datasets  # noqa: E402
from batchhvd.trainer import hvd, train  # noqa: E402
from batchhvd.trainer.fitting import evaluate, fit  # noqa: E402


def main() -> None:
    """Trains the tutorial's network and saves it below ``--dir``."""
    settings = train.parse(sys.argv[1:])

    # HOROVOD: initialize Horovod.
    hvd.init()
    backend.seed(settings.seed + 1000 * hvd.rank())
    keras.mixed_precision.set_dtype_policy(backend.precision(settings.precision))

    # The data, split between train and test sets.
    data = datasets.load(settings.dataset, settings.data_dir)
    if hvd.rank() == 0:
        train.announce(data, print)
    y_train = train.one_hot(data.y_train, data.classes)
    y_test = train.one_hot(data.y_test, data.classes)

    # HOROVOD: adjust epochs and learning rate to the number of ranks.
    plan = train.planned(settings, data, hvd.size())
    model = train.built(plan, data)

    # HOROVOD: wrap the optimizer, so that every step averages the gradients of all ranks.
    optimizer = hvd.DistributedOptimizer(train.optimizer(plan))
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=plan.smoothing)
    model.compile(loss=loss, optimizer=optimizer, metrics=["accuracy"], jit_compile=False)

    # HOROVOD: rank 0's weights go to all before the first step, and each rank trains on its own part of the data.
    result = fit(
        model,
        (data.x_train, y_train),
        validation=(data.x_test, y_test),
        seed=settings.seed,
        epochs=plan.epochs,
        batch_size=plan.batch,
        augment=train.augmentation(plan, data),
        pictures=True,
        whole=plan.faithful,
        initial_epoch=train.resumed(settings, model),
        callbacks=train.writers(settings),
        compiled=backend.compiled(settings.step),
    )

    scores = result.metrics or evaluate(model, (data.x_test, y_test), pictures=True)  # after --resume, nothing was left

    # HOROVOD: only rank 0 saves and prints.
    if hvd.rank() == 0:
        train.note(settings, plan, result)
        print(f"Saved trained model at {train.save(model, plan, train.place(settings))}")
        print(f"Test loss: {scores['val_loss']}")
        print(f"Test accuracy: {scores['val_accuracy']}")


if __name__ == "__main__":
    main()
