"""Trains the recipes on one GPU and, beside them, the programs of the record holders, and prints one table.

    export KERAS_BACKEND=torch
    python benchmarks/trainer_record.py --data-dir DATA --out FILE [--records FOLDER] [--seeds 5] [--only fast,tutorial]

DATA holds cifar-10-batches-py. FOLDER holds the programs of github.com/KellerJordan/cifar10-airbench as they are
(``airbench94_muon.py``, ``airbench96.py``) or the folder ``airbench`` of their package. They get the same pictures as
``train.pt`` and ``test.pt``; only the number of their runs is changed, and the compilation is taken out of
``airbench94_muon.py``, which trains nothing when PyTorch 2.11 compiles it.

Accuracies are with six views of each test picture (itself and two moves by a pixel, each also mirrored), as theirs.
Seconds are of training alone; ours are scaled from the steps after the first three to all steps. The first seconds
(compiling and recording) are apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batchhvd.trainer import backend

backend.prepare()

import keras  # noqa: E402  after the preparation on purpose
import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

from batchhvd.trainer import data as datasets  # noqa: E402
from batchhvd.trainer import hvd, recipe, train  # noqa: E402
from batchhvd.trainer.fitting import fit  # noqa: E402

Row = dict[str, Any]
#: What each program of ours is called, with the batch and the passes where these are not the recipe's.
OURS: dict[str, tuple[recipe.Recipe, int | None, int | None]] = {
    "fast": (recipe.FAST, None, None),
    "best": (recipe.BEST, None, None),
    "tutorial": (recipe.TUTORIAL, 1024, 14),
}
RATE_BATCH, RATE_EPOCHS = 4096, 20
LIMIT = 150  # seconds for one program of others


def main() -> None:
    """Runs what is asked for, writes the document and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=Path, help="folder with the record holders' programs")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="fast,best,tutorial,rate", help="which of ours")
    options = parser.parse_args()
    hvd.init()
    data = datasets.load("cifar10", options.data_dir)
    rows = [row for name in options.only.split(",") if name for row in ours(name, data, options.seeds)]
    write(options.out, rows)
    for row in records(options.records, data, options.seeds) if options.records else ():
        rows.append(row)
        write(options.out, rows)
    print(*table([summary(rows, name) for name in named(rows)]), sep="\n")


def write(path: Path, rows: list[Row]) -> None:
    """Writes the document."""
    document = {"about": (__doc__ or "").split("\n\n")[-2:], "machine": machine()}
    document |= {"programs": [summary(rows, name) for name in named(rows)], "runs": rows}
    path.write_text(json.dumps(document, indent=1) + "\n")


def machine() -> Row:
    """Returns what was measured on."""
    versions = {"torch": torch.__version__, "keras": keras.__version__, "python": sys.version.split()[0]}
    return {"gpu": torch.cuda.get_device_name() if backend.gpu() else "none", "cores": os.cpu_count(), **versions}


# --- ours ------------------------------------------------------------------------------------------------------------


def ours(name: str, data: datasets.Data, seeds: int) -> list[Row]:
    """Trains one of our programs once for each seed; or measures its rate."""
    if name == "rate":
        return [trained("tutorial", data, seed, RATE_BATCH, RATE_EPOCHS) | {"program": "rate"} for seed in range(seeds)]
    return [trained(name, data, seed, *OURS[name][1:]) for seed in range(seeds)]


def trained(
    name: str,
    data: datasets.Data,
    seed: int,
    batch: int | None = None,
    epochs: int | None = None,
    chosen: recipe.Recipe | None = None,
) -> Row:
    """Trains through ``fit`` and returns the figures."""
    backend.seed(seed)
    keras.mixed_precision.set_dtype_policy(backend.precision())
    chosen = chosen or OURS[name][0]
    settings = train.TrainingSettings(dir="", dataset="cifar10", epochs=epochs, batch_size=batch, seed=seed)
    plan = train.planned(settings, data, 1, chosen)
    model = train.built(plan, data)
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=plan.smoothing)
    model.compile(optimizer=train.optimizer(plan), loss=loss, metrics=["accuracy"], jit_compile=False)
    result = fit(
        model,
        (data.x_train, train.one_hot(data.y_train, data.classes)),
        epochs=plan.epochs,
        batch_size=plan.batch,
        augment=train.augmentation(plan, data),
        pictures=True,
        seed=seed,
        compiled=backend.compiled(),
        progress=None,
    )
    single, several = accuracies(model, data)
    return {
        "program": name,
        "seed": seed,
        "accuracy": several,
        "accuracy of one view": single,
        "seconds": round(plan.epochs * len(data.x_train) / result.images_per_second, 3),
        "first seconds": round(result.first_seconds, 2),
        "images a second": round(result.images_per_second),
        "batch": plan.batch,
        "passes": plan.epochs,
    }


@torch.no_grad()
def accuracies(model: keras.Model, data: datasets.Data) -> tuple[float, float]:
    """Returns the test accuracy with one view of each picture, and with six."""
    device = "cuda" if backend.gpu() else "cpu"
    x = torch.as_tensor(data.x_test, device=device).float() / 255  # (10000, 32, 32, 3)
    y = torch.as_tensor(data.y_test, device=device)
    side = x.shape[1]
    wide = functional.pad(x.permute(0, 3, 1, 2), (1, 1, 1, 1), "reflect").permute(0, 2, 3, 1)
    views = (x, 0.5), (wide[:, :side, :side], 0.25), (wide[:, 2:, 2:], 0.25)
    one = logits(model, x)
    six = sum(weight * (logits(model, view) + logits(model, view.flip(2))) for view, weight in views)
    found = [(guess.argmax(1) == y).float().mean().item() for guess in (one, six)]
    return round(found[0], 4), round(found[1], 4)


def logits(model: keras.Model, x: torch.Tensor) -> torch.Tensor:
    """Returns the logarithms of predictions, which are the logits but for a number for each picture."""
    return torch.cat([model(part, training=False).float().clamp_min(1e-30).log() for part in x.split(2000)])


# --- theirs ----------------------------------------------------------------------------------------------------------

CHANGES = {
    "airbench94_muon.py": ((r"@torch\.compile\n", ""), (r"\n *model\.compile\(.*\)", "")),
    "airbench96.py": (),
    "airbench94.py": (),
}
PACKAGE = "import airbench; airbench.warmup{0}(); [airbench.train{0}(run=i) for i in range({1})]"


def records(folder: Path, data: datasets.Data, seeds: int) -> Iterator[Row]:
    """Runs each program in a process of its own and reads the tables that it prints."""
    with tempfile.TemporaryDirectory() as room:
        pictures(Path(room), data)
        for name, command in programs(folder, Path(room), seeds).items():
            found = finals(printed(name, command, room))[-seeds:]
            yield from ({"program": name, "seed": seed, **row} for seed, row in enumerate(found))


def printed(name: str, command: list[str], room: str) -> str:
    """Returns what a program prints within the limit, and tells how it ended."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=room, stdout=out, stderr=errors, text=True, env=unbuffered())
        try:
            ended = f"exit code {process.wait(LIMIT)}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended = f"ended after {LIMIT} s"
        out.seek(0)
        errors.seek(0)
        print(f"{name}: {ended}", errors.read()[-600:] if process.returncode else "", flush=True)
        return out.read()


def unbuffered() -> dict[str, str]:
    """Returns the environment of a program whose lines are to be seen even if it is ended."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def pictures(room: Path, data: datasets.Data) -> None:
    """Writes the pictures where the programs read them."""
    (room / "cifar10").mkdir()
    for name, x, y in (("train", data.x_train, data.y_train), ("test", data.x_test, data.y_test)):
        content = {"images": torch.as_tensor(x), "labels": torch.as_tensor(y).long(), "classes": list(range(10))}
        torch.save(content, room / "cifar10" / f"{name}.pt")


def programs(folder: Path, room: Path, seeds: int) -> dict[str, list[str]]:
    """Returns how to run each program that the folder holds."""
    found = {}
    for name, changes in CHANGES.items():
        if (folder / name).exists():
            text = re.sub(r"range\((200|[0-9]{2,4})\)\]\)", f"range({seeds})])", (folder / name).read_text())
            for old, new in changes:
                text = re.sub(old, new, text)
            (room / name).write_text(text)
            found[name.removesuffix(".py")] = [sys.executable, name]
    if (folder / "airbench").is_dir():
        code = f"import sys; sys.path.insert(0, {str(folder.resolve())!r}); "
        for level in ("94", "96"):
            found[f"package train{level}"] = [sys.executable, "-c", code + PACKAGE.format(level, seeds)]
    return found


def finals(printed: str) -> list[Row]:
    """Returns the figures of each run, from the rows that begin a new table and those called eval."""
    rows = []
    for line in printed.splitlines():
        cells = [cell.strip() for cell in line.strip("|- ").split("|")]
        numbers = [cell for cell in cells if re.fullmatch(r"[0-9.]+", cell)]
        if "eval" in cells and len(numbers) >= 2:
            one, six, seconds = (*map(float, numbers[-3:]),)
            rows.append({"accuracy": six, "accuracy of one view": one, "seconds": seconds})
    return rows


# --- the table -------------------------------------------------------------------------------------------------------


def named(rows: list[Row]) -> list[str]:
    """Returns the programs in the order of their rows."""
    return list(dict.fromkeys(row["program"] for row in rows))


def summary(rows: list[Row], name: str) -> Row:
    """Returns the medians of a program's runs; the first seconds are of its first run, and the median of the others."""
    mine = [row for row in rows if row["program"] == name]
    found: Row = {"program": name, "runs": len(mine)}
    for figure in ("accuracy", "accuracy of one view", "seconds", "images a second"):
        values = [row[figure] for row in mine if figure in row]
        found |= {figure: statistics.median(values)} if values else {}
    accuracies_found = [row["accuracy"] for row in mine]
    found["deviation"] = round(statistics.stdev(accuracies_found), 4) if len(mine) > 1 else 0.0
    if "first seconds" in mine[0]:
        found["first seconds"] = mine[0]["first seconds"]
        found["first seconds of the next runs"] = statistics.median(row["first seconds"] for row in mine[1:] or mine)
    return found


def table(programs_found: list[Row]) -> list[str]:
    """Returns the lines of the table."""
    columns = ["program", "runs", "accuracy", "deviation", "accuracy of one view", "seconds", "images a second"]
    columns += ["first seconds", "first seconds of the next runs"]
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return [*lines, *("| " + " | ".join(str(row.get(name, "")) for name in columns) + " |" for row in programs_found)]


if __name__ == "__main__":
    main()
