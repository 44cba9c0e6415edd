"""The kinds of findings. The page of the check has this table, and a test compares the two."""

from __future__ import annotations

from attrs import frozen


@frozen
class FindingKind:
    """One kind of finding.

    Attributes:
        meaning: what is wrong, in one sentence.
        fixed: what ``--fix`` does about it; "" if a person has to decide.
    """

    meaning: str
    fixed: str = ""


_RANK_0 = "puts it under `if hvd.rank() == 0`"

#: Every code with its meaning, in alphabetical order.
CODES = {
    "bars-everywhere": FindingKind(
        "Every rank shows a progress bar in the same output.", "sets `verbose` to 0 on other ranks"
    ),
    "broken-binding": FindingKind(
        "A name of Horovod's own binding fails with Keras 3 variables.", "imports `batchhvd.trainer.hvd` instead"
    ),
    "broken-wrapper": FindingKind(
        "Horovod's own wrapper exchanges no gradient on Keras 3: every rank trains alone.",
        "imports `batchhvd.trainer.hvd` instead",
    ),
    "callbacks-not-passed": FindingKind("Callbacks are created and never passed to `fit`.", "passes them"),
    "elastic": FindingKind("The script expects that ranks come and go during the training; in a job they do not."),
    "every-rank-downloads": FindingKind(
        "Every rank downloads into the same file at the same time.", "lets local rank 0 of each node download first"
    ),
    "gpu-not-pinned": FindingKind(
        "No GPU is chosen by the local rank: all ranks of a node use the first one.",
        "adds `backend.prepare()`, or `torch.cuda.set_device`",
    ),
    "no-broadcast": FindingKind(
        "Nothing gives all ranks the same first weights.", "adds the callback, or the two calls of PyTorch"
    ),
    "no-horovod": FindingKind(
        "The script does not use Horovod: each rank trains by itself.", "imports and initializes it"
    ),
    "no-init": FindingKind("`hvd.init()` is never called.", "adds it after the import"),
    "not-sharded": FindingKind("Every rank passes over all of the data.", "gives each rank its part of arrays"),
    "not-wrapped": FindingKind("Gradients are not averaged over the ranks.", "wraps the optimizer"),
    "prints-everywhere": FindingKind("Every rank prints the same line.", _RANK_0),
    "rate-not-scaled": FindingKind("The learning rate does not depend on the number of ranks."),
    "removed-api": FindingKind(
        "A name, an argument or a kind of path that Keras 3, TensorFlow 2 or Lightning 2 no longer takes.",
        "writes the new name, if it means the same, and drops arguments without effect",
    ),
    "shared-path": FindingKind("Every rank writes to the same path.", _RANK_0),
    "unsupported-name": FindingKind("A name of Horovod's that is not supported on Keras 3."),
}
