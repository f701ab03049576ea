"""Free GPUs of every node, and consolidated best fit over them.

The rule is that of `policies.placement.best_fit`: each share of a job goes to the fitting node with the fewest free GPUs, the
lowest index on ties; larger shares first, no two shares on one node. How a job of each size divides into shares is set once per
size, by `divide`. The rule is written a second time here because this one is compiled and counts GPUs alone: a placement takes
0.3 us, where that of `Capacity`, which knows CPUs, memory and node sets as well, takes 2.5 us.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from simulator.kernel.constants import ANYWHERE


class NodePool:
    """What is free on each node.

    Nodes that are up stand in the level of their free GPUs: word w of level f has bit b set exactly when node 64 w + b is up
    and has f GPUs free. So the best fit for a share of s GPUs is the lowest bit of the first level from s on that has one.

    Invariants: `population[f]` counts the bits of level f; `total` is what the nodes that are up have free together; a
    node that is down is in no level, while its `free` is kept up to date.
    """

    def __init__(self, gpus: Sequence[int]) -> None:
        """Nodes with so many GPUs each, all up, all free."""
        self.num_nodes = len(gpus)
        self.top = max(gpus, default=0)
        self.words = (len(gpus) + 63) // 64
        self.total = 0
        self.num_sizes = 0
        self.capacity = array("q", gpus)
        self.shares = array("q", bytes(8))
        self.counts = array("q", bytes(8))
        self._make_room()
        for node in range(self.num_nodes):
            self.free[node] = self.capacity[node]
            self.set_up(node, 1)

    def _make_room(self) -> None:
        self.free = array("q", bytes(8 * self.num_nodes))
        self.up = array("q", bytes(8 * self.num_nodes))
        self.levels = array("Q", bytes(8 * (self.top + 1) * self.words))
        self.population = array("q", bytes(8 * (self.top + 1)))
        self.chosen = array("q", bytes(8 * self.num_nodes))
        self.chosen_gpus = array("q", bytes(8 * self.num_nodes))

    def divide(self, shares: Sequence[int], counts: Sequence[int]) -> None:
        """How jobs divide: size k has counts[2k] shares of shares[2k] GPUs, then counts[2k+1] of shares[2k+1].

        A size that fits on no state of the cluster has counts of 0.
        """
        self.num_sizes = len(shares) // 2
        self.shares = array("q", shares)
        self.counts = array("q", counts)

    def share_division(self, other: NodePool) -> None:
        """Jobs divide as they do there."""
        self.num_sizes = other.num_sizes
        self.shares = other.shares
        self.counts = other.counts

    def set_up(self, node: int, up: int) -> None:
        """The node takes jobs from now on (1), or takes none (0)."""
        if self.up[node] == up:
            return
        self.up[node] = up
        self._flip(node, self.free[node])
        if up:
            self.population[self.free[node]] += 1
            self.total += self.free[node]
        else:
            self.population[self.free[node]] -= 1
            self.total -= self.free[node]

    def _flip(self, node: int, level: int) -> None:
        self.levels[level * self.words + node // 64] ^= _bit(node % 64)

    def take(self, node: int, gpus: int) -> None:
        """So many of the node's free GPUs are held from now on; a negative number gives them back."""
        before = self.free[node]
        after = before - gpus
        self.free[node] = after
        if self.up[node]:
            self._flip(node, before)
            self._flip(node, after)
            self.population[before] -= 1
            self.population[after] += 1
            self.total -= gpus

    def place(self, size: int, gpus: int, rule: int) -> int:
        """Where a job of that size and number of GPUs would go; takes nothing.

        Returns how many nodes, and leaves them in `chosen` and `chosen_gpus`; 0 when the job does not fit.
        """
        if gpus > self.total:
            return 0
        found = self._best_fit(size)
        if found == 0 and rule == ANYWHERE:
            found = self._freest(gpus)
        return found

    def _best_fit(self, size: int) -> int:
        found = 0
        for part in range(2 * size, 2 * size + 2):
            missing = self.counts[part]
            if missing == 0:
                continue
            share = self.shares[part]
            found = self._choose(share, missing, found)
            if found < 0:
                return 0
        self._restore(found)
        return found

    def _choose(self, share: int, missing: int, found: int) -> int:
        """Choose nodes for equal shares behind those found already; how many are chosen now, -1 when they do not suffice.

        Chosen nodes are out of their levels until `_restore`, so that no two shares meet on a node.
        """
        for level in range(share, self.top + 1):
            if self.population[level] == 0:
                continue
            base = level * self.words
            for word in range(self.words):
                while self.levels[base + word] != 0:
                    bit = _lowest_bit(self.levels[base + word])
                    node = word * 64 + bit
                    self.levels[base + word] ^= _bit(bit)
                    self.chosen[found] = node
                    self.chosen_gpus[found] = share
                    found += 1
                    missing -= 1
                    if missing == 0:
                        return found
        self._restore(found)
        return -1

    def _restore(self, found: int) -> None:
        for index in range(found):
            node = self.chosen[index]
            self._flip(node, self.free[node])

    def _freest(self, gpus: int) -> int:
        """All the job's GPUs from the freest nodes, lowest index on ties; the total is known to suffice."""
        found = 0
        for level in range(self.top, 0, -1):
            if self.population[level] == 0:
                continue
            base = level * self.words
            for word in range(self.words):
                left = self.levels[base + word]
                while left != 0:
                    bit = _lowest_bit(left)
                    left ^= _bit(bit)
                    share = min(level, gpus)
                    self.chosen[found] = word * 64 + bit
                    self.chosen_gpus[found] = share
                    found += 1
                    gpus -= share
                    if gpus == 0:
                        return found
        return 0

    def take_chosen(self, found: int) -> None:
        """Take what the last `place` chose."""
        for index in range(found):
            self.take(self.chosen[index], self.chosen_gpus[index])

    def copy_from(self, other: NodePool) -> None:
        """Become equal to a pool of the same nodes."""
        self.total = other.total
        # Plain loops: compiled they are block copies, and much faster than slices of so few entries.
        for node in range(self.num_nodes):
            self.free[node] = other.free[node]
            self.up[node] = other.up[node]
        for word in range((self.top + 1) * self.words):
            self.levels[word] = other.levels[word]
        for level in range(self.top + 1):
            self.population[level] = other.population[level]

    def copy(self) -> NodePool:
        """An independent copy; the division of jobs is shared."""
        twin = NodePool(())
        twin.num_nodes = self.num_nodes
        twin.top = self.top
        twin.words = self.words
        twin.capacity = self.capacity
        twin._make_room()
        twin.share_division(self)
        twin.copy_from(self)
        return twin


def _bit(place: int) -> int:
    """The word with only that bit set. As a variable, because C would shift a literal 1 in 32 bits."""
    one = 1
    return one << place


def _lowest_bit(word: int) -> int:
    """Index of the lowest bit that is set in a word of 64 bits; the word is not 0."""
    index = 0
    if not word & 0xFFFFFFFF:
        word >>= 32
        index += 32
    if not word & 0xFFFF:
        word >>= 16
        index += 16
    if not word & 0xFF:
        word >>= 8
        index += 8
    if not word & 0xF:
        word >>= 4
        index += 4
    if not word & 0x3:
        word >>= 2
        index += 2
    if not word & 0x1:
        index += 1
    return index
