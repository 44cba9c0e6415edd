"""How well the adviser predicts: ``python benchmarks/adviser.py [--seconds 10]``; about 6 minutes if nothing else runs.

Three trainings on 1, 2 and 4 ranks of this machine: the tutorial's network, one that is nearly all embedding, and one
that is nearly all dense layers. For each of 2 and 4 ranks a model of the other two predicts the rate, and the advice
that follows from the prediction is compared with what is measured. Then what the timing of the exchange costs: the same
run with and without it, in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from batchhvd.advice.scaling import model as models
from batchhvd.advice.scaling.judgement import ScaleAdvice, advise
from batchhvd.advice.scaling.measurement import ScaleRun
from batchhvd.trainer.measure.machine_facts import machine
from batchhvd.trainer.scaling import __main__ as scaling

HERE = Path(__file__).parent
RESULT = HERE / "results" / "adviser.json"
TUTORIAL = ["../batchhvd/trainer/cifar_cnn_distributed.py", "--dir=/nowhere", "--dataset=digits", "--batch-size=32"]
TRAININGS = {
    "tutorial": TUTORIAL,
    "embedding": ["adviser_training.py", "embedding"],
    "dense": ["adviser_training.py", "dense"],
}
RANKS = (1, 2, 4)
EQUAL = 0.03  # of the rate


def options(script: Sequence[str], seconds: float, bare: bool = False) -> argparse.Namespace:
    """Returns the options with which the adviser's command would measure a script."""
    return argparse.Namespace(
        script=str((HERE / script[0]).resolve()),
        arguments=list(script[1:]),
        ranks=RANKS,
        seconds=seconds,
        precision=0.02,
        bare=bare,
    )


def rows(name: str, advice: ScaleAdvice) -> Iterator[dict[str, object]]:
    """Yields what was measured and what was predicted from the other rank counts."""
    for run in advice.runs:
        parts = {part: round(1e3 * getattr(run, part), 2) for part in ("step", "input", "compute", "exchange")}
        row = {"training": name, "ranks": run.ranks, "rate": round(run.rate, 1), "spread": round(run.spread, 4)}
        yield {**row, **{f"{part} ms": value for part, value in parts.items()}, **prediction(run, advice.runs)}


def prediction(run: ScaleRun, runs: Sequence[ScaleRun]) -> dict[str, object]:
    """Returns the rate that a model without this run predicts, and whether its advice is the right one."""
    if run.ranks == 1:
        return {}
    others = [other for other in runs if other is not run]
    step = models.predicted(models.fit(others), run).whole
    rate = run.ranks * run.batch / step
    seen = {other.ranks: other.rate for other in others} | {run.ranks: rate}
    measured = {other.ranks: other.rate for other in runs}
    advised = next(ranks for ranks in sorted(seen) if seen[ranks] >= max(seen.values()) * (1 - EQUAL))
    right = measured[advised] >= max(measured.values()) * (1 - 2 * EQUAL)
    return {"predicted": round(rate, 1), "error": round(rate / run.rate - 1, 4), "advised": advised, "right": right}


def cost(seconds: float) -> dict[str, object]:
    """Returns what timing the exchange costs: the median ratio of pairs of runs with and without it."""
    ratios = []
    for _ in range(2):
        bare, timed = (scaling.measured(2, options(TRAININGS["dense"], seconds, bare)) for bare in (True, False))
        ratios.append(timed.step / bare.step - 1)
    return {"what": "dense, 2 ranks", "pairs": len(ratios), "of a step": round(statistics.median(ratios), 4)}


def main() -> int:
    """Measures, prints, and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement, after the warm-up")
    parser.add_argument("--only", choices=list(TRAININGS), help="one training, which writes no result")
    asked = parser.parse_args()
    found = []
    for name, script in TRAININGS.items():
        if asked.only in (None, name):
            advice = advise([scaling.measured(size, options(script, asked.seconds)) for size in RANKS])
            print(f"\n{name}\n{advice}\n", flush=True)
            found += rows(name, advice)
    predicted = [row for row in found if "error" in row]
    worst = max(abs(float(str(row["error"]))) for row in predicted)
    document = {
        "command": f"python benchmarks/adviser.py --seconds {asked.seconds:g}",
        "machine": machine(),
        "largest error of a predicted rate": worst,
        "advice that was right": f"{sum(bool(row['right']) for row in predicted)} of {len(predicted)}",
        **({} if asked.only else {"cost of timing": cost(asked.seconds / 2)}),
        "measured": found,
    }
    print(
        json.dumps({name: value for name, value in document.items() if name not in ("measured", "machine")}, indent=1)
    )
    for row in found:
        print(row)
    if not asked.only:
        RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if worst <= 0.15 and all(row["right"] for row in predicted) else 1


if __name__ == "__main__":
    sys.exit(main())
