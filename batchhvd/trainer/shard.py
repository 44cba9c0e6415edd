"""Who trains on which sample, and how it is changed on the way: pure arithmetic, the same on every rank.

All ranks share one endless row of samples: a fresh shuffle of the whole set, then the next one, and so on. Step ``s``
takes the next ``batch × ranks`` of them, and each rank its own ``batch`` out of these. So every rank has the same
number of steps whatever the sizes are, no sample is lost (after any number of steps two samples' visits differ by at
most one), and N ranks see exactly what one rank with an N times larger batch would see.
"""

from __future__ import annotations

import math
from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray


@attrs.frozen(eq=False, slots=False)
class Shard:
    """Says which samples one rank takes at each step.

    Attributes:
        samples: how many there are in the set.
        batch: how many one rank takes per step.
        rank, ranks: this rank, and how many there are.
        seed: decides every shuffle; must be the same on all ranks.
        whole: True lets each rank walk the whole set by itself, in an order of its own, as the tutorial's script does.
    """

    samples: int
    batch: int
    rank: int = 0
    ranks: int = 1
    seed: int = 0
    whole: bool = False

    @property
    def steps(self) -> int:
        """Steps of one epoch, equal on all ranks: enough to go once over the set."""
        return math.ceil(self.samples / (self.batch * (1 if self.whole else self.ranks)))

    def at(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the samples of this rank at ``step``, counted from the start of training.

        Returns:
            The samples' numbers and the laps they belong to, both int64 (batch,).
        """
        if step not in self._kept:
            self._kept.clear()  # augmentation asks for the same step once more, nobody for an older one
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
        """Returns random numbers for ``step``, the same on every rank: take ``mine`` of a draw for all."""
        own = self.rank if self.whole else 0
        return np.random.default_rng([self.seed, 1, step, own, *purpose.encode()])

    @property
    def mine(self) -> slice:
        """Where this rank's part is in a draw of ``total`` numbers."""
        return slice(0, self.batch) if self.whole else slice(self.rank * self.batch, (self.rank + 1) * self.batch)

    @property
    def total(self) -> int:
        """How many random numbers one step draws at a time."""
        return self.batch if self.whole else self.batch * self.ranks

    @cached_property
    def halves(self) -> NDArray[np.int8]:
        """Parts the samples into two random halves: 0 or 1 for each, int8 (samples,)."""
        return np.random.default_rng([self.seed, 2]).integers(0, 2, size=self.samples, dtype=np.int8)

    @cached_property
    def _kept(self) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return {}

    @cached_property
    def _orders(self) -> dict[int, NDArray[np.int64]]:
        return {}

    def _order(self, lap: int) -> NDArray[np.int64]:
        if lap not in self._orders:
            for old in [key for key in self._orders if key < lap - 1]:
                del self._orders[old]
            own = self.rank if self.whole else 0
            self._orders[lap] = np.random.default_rng([self.seed, 0, lap, own]).permutation(self.samples)
        return self._orders[lap]


@attrs.frozen
class Augment:
    """Moves and mirrors pictures by choosing which pixel goes where, for a whole batch at once.

    Attributes:
        shift: the greatest move in pixels, up, down, left and right; what comes in at the border repeats the edge
            pixel (the tutorial's ``fill_mode="nearest"``).
        flip: mirrors each picture on every other lap over the data, a random half of them first.
        hole: the side of a square that is painted black somewhere in each picture; 0 paints none.
    """

    shift: int = 0
    flip: bool = False
    hole: int = 0

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
        """Returns for this rank's batch the source row of each row, and the source column of each column.

        Returns:
            int64 (batch, height) and int64 (batch, width).
        """
        down, right = self.moves(shard, step)[:, :, None]  # (batch, 1) each
        rows = np.clip(np.arange(height) + down, 0, height - 1)
        columns = np.clip(np.arange(width) + right, 0, width - 1)
        return rows, np.where(self.mirrored(shard, step)[:, None], columns[:, ::-1], columns)
