"""Which rank trains on which sample, and how samples are changed: pure arithmetic, the same on every rank.

All ranks share one endless sequence of samples: one shuffle of the whole set after another. Step ``s`` takes the next
``batch × ranks`` samples, and each rank takes its own ``batch`` of these. So every rank has the same number of steps
for any sizes, no sample is lost (after any number of steps, the visits of two samples differ by at most one), and N
ranks see exactly what one rank with an N times larger batch would see.
"""

from __future__ import annotations

import math
from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray


@attrs.frozen(eq=False, slots=False)
class Shard:
    """The samples that one rank takes at each step.

    Attributes:
        samples: number of samples in the set.
        batch: number of samples that one rank takes per step.
        rank, ranks: this rank, and the number of ranks.
        seed: decides every shuffle; must be the same on all ranks.
        whole: True lets each rank pass over the whole set, in an order of its own, as the tutorial's script does.
        shuffle: False keeps the order of the set in every lap.
    """

    samples: int
    batch: int
    rank: int = 0
    ranks: int = 1
    seed: int = 0
    whole: bool = False
    shuffle: bool = True

    @property
    def steps(self) -> int:
        """Number of steps of one epoch, equal on all ranks: enough to pass over the set once."""
        return math.ceil(self.samples / (self.batch * (1 if self.whole else self.ranks)))

    def at(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the samples of this rank at ``step``, counted from the start of training.

        Returns:
            The numbers of the samples and the laps they belong to, both int64 (batch,).
        """
        if step not in self._kept:
            self._kept.clear()  # augmentation asks for the same step again; older steps are never asked for
            self._kept[step] = self._found((step if self.whole else step * self.ranks + self.rank) * self.batch)
        return self._kept[step]

    def _found(self, first: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        numbers, laps, left = [], [], self.batch
        while left:
            lap, place = divmod(first + self.batch - left, self.samples)
            part = self._order(lap)[place : place + left]
            numbers.append(part)
            laps.append(np.full(len(part), lap))
            left -= len(part)
        return np.concatenate(numbers), np.concatenate(laps)

    def draws(self, step: int, purpose: str) -> np.random.Generator:
        """Returns a random generator for ``step``, the same on every rank: draw ``total`` numbers and take ``mine``."""
        own = self.rank if self.whole else 0
        return np.random.default_rng([self.seed, 1, step, own, *purpose.encode()])

    @property
    def mine(self) -> slice:
        """The part of this rank in a draw of ``total`` numbers."""
        return slice(0, self.batch) if self.whole else slice(self.rank * self.batch, (self.rank + 1) * self.batch)

    @property
    def total(self) -> int:
        """How many random numbers one draw of a step has."""
        return self.batch if self.whole else self.batch * self.ranks

    @cached_property
    def halves(self) -> NDArray[np.int8]:
        """The random half to which each sample belongs: 0 or 1, int8 (samples,)."""
        return np.random.default_rng([self.seed, 2]).integers(0, 2, size=self.samples, dtype=np.int8)

    @cached_property
    def _kept(self) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return {}

    @cached_property
    def _orders(self) -> dict[int, NDArray[np.int64]]:
        return {}

    def _order(self, lap: int) -> NDArray[np.int64]:
        if not self.shuffle:
            return np.arange(self.samples)
        if lap not in self._orders:
            for old in [key for key in self._orders if key < lap - 1]:
                del self._orders[old]
            own = self.rank if self.whole else 0
            self._orders[lap] = np.random.default_rng([self.seed, 0, lap, own]).permutation(self.samples)
        return self._orders[lap]


@attrs.frozen
class Augment:
    """Moves and mirrors pictures by choosing the source of each pixel, for a whole batch at once.

    Attributes:
        shift: the largest move in pixels, up, down, left and right; pixels from beyond the border repeat the edge
            pixel (the tutorial's ``fill_mode="nearest"``).
        flip: mirrors each picture on every other lap over the data, beginning with a random half of them.
        hole: the side of a square that is painted somewhere in each picture; 0 paints none.
        paint: the value that the square gets in all channels; 0 is black.
    """

    shift: int = 0
    flip: bool = False
    hole: int = 0
    paint: int = 0

    def moves(self, shard: Shard, step: int) -> NDArray[np.int64]:
        """Returns how far down and right each of this rank's pictures moves at ``step``: int64 (2, batch)."""
        return shard.draws(step, "moves").integers(-self.shift, self.shift + 1, size=(2, shard.total))[:, shard.mine]

    def holes(self, shard: Shard, step: int, height: int, width: int) -> NDArray[np.int64]:
        """Returns the hole's first row and column in each of this rank's pictures: int64 (2, batch)."""
        highest = np.array([[height], [width]]) - self.hole + 1
        return shard.draws(step, "holes").integers(0, highest, size=(2, shard.total))[:, shard.mine]

    def mirrored(self, shard: Shard, step: int) -> NDArray[np.bool_]:
        """Returns which of this rank's pictures are mirrored at ``step``: bool (batch,)."""
        numbers, laps = shard.at(step)
        return (shard.halves[numbers] + laps) % 2 == (1 if self.flip else 2)

    def grid(self, shard: Shard, step: int, height: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the source row of each row and the source column of each column, for the batch of this rank.

        Returns:
            int64 (batch, height) and int64 (batch, width).
        """
        down, right = self.moves(shard, step)[:, :, None]  # (batch, 1) each
        rows = np.clip(np.arange(height) + down, 0, height - 1)
        columns = np.clip(np.arange(width) + right, 0, width - 1)
        return rows, np.where(self.mirrored(shard, step)[:, None], columns[:, ::-1], columns)
