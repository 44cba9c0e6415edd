"""The verification of an installation: two ranks add numbers with each framework."""

from __future__ import annotations

from collections.abc import Mapping

from batchhvd.errors import HorovodBrokenError
from batchhvd.trainer.install.build_plan import BuildPlan
from batchhvd.trainer.install.installation import COMMAND, installed
from batchhvd.trainer.install.step_log import StepLog
from batchhvd.trainer.measure import ranks

_SCRIPT = """
import importlib, os
hvd = importlib.import_module("horovod." + os.environ["BATCHHVD_VERIFY"])
hvd.init()
if os.environ["BATCHHVD_VERIFY"] == "torch":
    import torch
    value = torch.full((3,), hvd.rank() + 1.0)
else:
    import tensorflow as tf
    value = tf.fill((3,), hvd.rank() + 1.0)
total = hvd.allreduce(value, op=hvd.Sum).numpy().tolist()
print("sum", total, "size", hvd.size())
hvd.shutdown()
raise SystemExit(0 if total == [3.0] * 3 else 1)
"""


def verify(wanted: BuildPlan, steps: StepLog) -> None:
    """Adds the numbers of two ranks with each framework.

    Raises:
        HorovodBrokenError: A framework failed.
    """
    for name in wanted.frameworks:
        outcomes = ranks.run(ranks.python("-c", _SCRIPT), 2, variables=_script_variables(name), timeout=300)
        failed = [outcome for outcome in outcomes if outcome.exit_code]
        if failed:
            raise HorovodBrokenError(
                f"Horovod is installed, but two ranks could not add numbers with {name}: "
                f"{ranks.tail(failed[0].output)}\nBuild it again with: {COMMAND}",
                found=installed(),
                remedy=COMMAND,
            )
        steps.say(f"verified with {name}: two ranks added their numbers over gloo")


def _script_variables(name: str) -> Mapping[str, str]:
    return {"BATCHHVD_VERIFY": name, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
