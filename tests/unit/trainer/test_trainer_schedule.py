"""The tutorial's arithmetic, the cycle of the learning rate, and what a recipe makes of the ranks."""

import json
from pathlib import Path

import attrs
import numpy as np
import pytest

from batchhvd.errors import SpecError
from batchhvd.trainer import recipe, train
from batchhvd.trainer.data import Data
from batchhvd.trainer.schedule import one_cycle
from batchhvd.trainer.shard import Augment

TABLE = Path(__file__).parents[2] / "data" / "scripts" / "epochs_and_rate.json"
CIFAR = Data("cifar10", np.empty((50_000, 32, 32, 3), np.uint8), None, None, None, classes=10)


def test_the_tutorials_schedule_gives_the_tutorials_numbers() -> None:
    table = json.loads(TABLE.read_text())
    settings = train.TrainingSettings(dir="", dataset="cifar10", schedule="tutorial")
    for row in table["rows"]:
        plan = train.planned(settings, CIFAR, row["workers"])
        assert plan.epochs == row["epochs"]
        assert plan.rate == pytest.approx(row["rate"], rel=1e-12)
        assert plan.batch == 32
        assert plan.steps == row["epochs"] * table["stepsPerEpochWhenEveryRankReadsAll50000AtBatch32"]


def test_the_default_schedule_shares_the_data_and_scales_the_rate_with_the_ranks() -> None:
    plans = {ranks: train.planned(train.TrainingSettings(dir="", batch_size=32), CIFAR, ranks) for ranks in (1, 2, 4)}
    assert plans[4].rate == pytest.approx(4 * plans[1].rate)
    assert plans[4].epochs == plans[1].epochs
    assert plans[4].steps == pytest.approx(plans[1].steps / 4, rel=0.01)


@pytest.mark.parametrize(("name", "factor"), [("linear", 4.0), ("sqrt", 2.0), ("none", 1.0)])
def test_the_scaling_is_a_choice(name: str, factor: float) -> None:
    one, four = (
        train.planned(train.TrainingSettings(dir="", scaling=name, rate=0.5), CIFAR, ranks) for ranks in (1, 4)
    )
    assert [one.rate, four.rate] == pytest.approx([0.5, 0.5 * factor])


def test_the_fast_recipes_rate_grows_with_the_root_of_the_whole_batch() -> None:
    """As it was measured; ranks and batch are the same to it."""
    ranked = train.planned(train.TrainingSettings(dir="", recipe="fast", batch_size=512), CIFAR, 2)
    alone = train.planned(train.TrainingSettings(dir="", recipe="fast", batch_size=1024), CIFAR, 1)
    assert ranked.rate == pytest.approx(alone.rate) == pytest.approx(0.12 * 2**0.5)
    faithful = train.TrainingSettings(dir="", recipe="fast", schedule="tutorial")
    assert train.planned(faithful, CIFAR, 4).rate == pytest.approx(4e-4)


def test_up_to_four_ranks_share_one_batch() -> None:
    assert [recipe.TUTORIAL.batch_for(ranks, gpu=False) for ranks in (1, 2, 3, 4, 8)] == [128, 64, 42, 32, 32]


def test_one_cycle_rises_evenly_to_its_peak_and_falls_to_nothing() -> None:
    rates = np.array([one_cycle(step, steps=100, peak=2.0, warmup=0.25, start=0.05) for step in range(101)])
    assert rates[0] == pytest.approx(0.1)
    assert rates[25] == rates.max() == pytest.approx(2.0)
    assert rates[100] == one_cycle(170, steps=100, peak=2.0) == 0.0
    assert np.allclose(np.diff(rates[:25]), 1.9 / 25) and np.allclose(np.diff(rates[26:]), -2.0 / 75)


def test_two_epochs_are_one_whole_cycle() -> None:
    plan = train.planned(train.TrainingSettings(dir="", dataset="cifar10", epochs=2), CIFAR, 4)
    assert plan.steps == 2 * 391
    assert one_cycle(plan.steps, steps=plan.steps, peak=plan.rate) == 0.0


def test_an_unknown_recipe_names_the_known_ones() -> None:
    with pytest.raises(SpecError, match="tutorial, fast"):
        recipe.named("slow")


def test_the_command_line_gives_the_settings() -> None:
    settings = train.parse(["--dir", "aus gabe", "--epochs", "3", "--recipe", "fast", "--resume"])
    assert settings == attrs.evolve(train.TrainingSettings(dir="aus gabe"), epochs=3, recipe="fast", resume=True)


@pytest.mark.parametrize("arguments", [["--epochs", "0"], ["--batch-size", "-1"], ["--scaling", "cubic"]])
def test_bad_arguments_end_with_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        train.parse(["--dir", "x", *arguments])
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_digits_are_not_mirrored_and_the_tutorial_moves_by_a_tenth() -> None:
    plan = train.planned(train.TrainingSettings(dir="", schedule="tutorial"), CIFAR, 1)
    assert train.augmentation(plan, CIFAR) == Augment(3, True, 0)
    assert not train.augmentation(plan, attrs.evolve(CIFAR, flip=False)).flip
