"""Cases of the table: what is shown while a model trains, and callbacks that read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.trainer.model_case import (
    Given,
    OwnStep,
    case,
    fill,
    judge,
    metrics,
    mlp,
    one_hot,
    optimizers,
    plain,
    regressor,
    sgd,
    x_y,
)

import keras  # isort: skip

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

TF = ("tensorflow",)
BOTH = (*TF, "torch")


def classes(*shown: Any, **compiled: Any) -> Given:
    """Returns a classifier with labels as vectors."""
    x, y = x_y()
    given = plain(sgd(), compiled={"loss": "categorical_crossentropy", "metrics": list(shown), **compiled})
    return {**given, "data": (x, one_hot(y))}


@case()
def counting_metrics() -> Given:
    named = [metrics.AUC(name="auc"), metrics.Precision(name="p"), metrics.Recall(name="r"), "binary_accuracy"]
    return judge("binary_crossentropy", *named)


@case(later=TF)
def counts() -> Given:
    kinds = (metrics.TruePositives, metrics.TrueNegatives, metrics.FalsePositives, metrics.FalseNegatives)
    return judge("binary_focal_crossentropy", *(kind() for kind in kinds))


@case(later=BOTH)
def rates_at_a_point() -> Given:
    named = [metrics.RecallAtPrecision(0.4, name="rp"), metrics.SensitivityAtSpecificity(0.4, name="ss")]
    return judge("binary_crossentropy", *named, metrics.AUC(curve="PR", name="pr"), metrics.BinaryIoU(name="iou"))


@case(later=BOTH)
def rates_at_several_thresholds() -> Given:
    return judge("binary_crossentropy", metrics.Precision([0.3, 0.5, 0.7], name="p"))


@case(later=BOTH)
def area_under_many_curves() -> Given:
    return classes(metrics.AUC(multi_label=True, num_labels=3, name="auc"), metrics.TopKCategoricalAccuracy(2))


@case()
def metrics_with_arrays() -> Given:
    return classes(metrics.F1Score())


@case(later=BOTH)
def averaged_scores() -> Given:
    return classes(metrics.F1Score(average="macro", name="macro"), metrics.FBetaScore("micro", 2.0, name="micro"))


@case(later=BOTH)
def overlap() -> Given:
    return classes(metrics.OneHotMeanIoU(num_classes=3, name="iou"), "categorical_accuracy")


@case(later=TF)
def regression() -> Given:
    named = [metrics.RootMeanSquaredError(name="rmse"), metrics.R2Score(name="r2"), "mae"]
    return regressor("huber", *named, optimizer=optimizers.Adam(0.01))


@case(later=BOTH)
def correlation() -> Given:
    named = [metrics.PearsonCorrelation(name="pearson"), metrics.CosineSimilarity(name="cosine")]
    return regressor("log_cosh", *named, metrics.LogCoshError(name="logcosh"), last=4)


@case(later=BOTH)
def rates_of_events() -> Given:
    x, y = x_y()
    given = regressor("poisson", "poisson", activation="exponential")
    return {**given, "data": (x, y.astype("float32")[:, None])}


@case(later=BOTH)
def margins() -> Given:
    return judge("squared_hinge", metrics.Hinge(), model=mlp(last=1, activation="tanh"))


class Largest(metrics.Metric):  # type: ignore[misc]  # Keras has no types
    """A metric of the user's whose state is no sum: the mean over the ranks, as the page says."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, y: Tensor, shown: Tensor, sample_weight: Tensor | None = None) -> None:
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(shown)))

    def result(self) -> Tensor:
        return self.value + 0.0


@case(other=("largest",), later=TF)
def metric_of_the_user() -> Given:
    return classes(Largest(), "accuracy")


@case(later=BOTH)
def metric_function() -> Given:
    def sure(y: Tensor, shown: Tensor) -> Tensor:
        return keras.ops.max(shown, axis=-1)

    return classes(sure)


@case()
def own_loss() -> Given:
    model = OwnStep()
    model.build((None, 8))
    fill(model)
    model.compile(sgd())
    return {"model": model, "data": x_y()}


# --- callbacks that read it ------------------------------------------------------------------------------------------


@case(later=TF)
def rate_that_follows_a_metric() -> Given:
    slower = keras.callbacks.ReduceLROnPlateau("val_auc", factor=0.5, patience=1, min_delta=1, min_lr=0.0, mode="max")
    given = judge("binary_crossentropy", metrics.AUC(name="auc"))
    return {**given, "callbacks": [slower], "epochs": 3, "validation_freq": 1}


@case(later=BOTH)
def rate_by_epoch() -> Given:
    by_epoch = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    return plain(optimizers.Adam(0.01), callbacks=[by_epoch])


@case(later=TF)
def stopped_early() -> Given:
    early = keras.callbacks.EarlyStopping("val_accuracy", patience=1, min_delta=1, restore_best_weights=True)
    return plain(sgd(), callbacks=[early], epochs=5, validation_freq=1)
