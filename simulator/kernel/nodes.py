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
    """Free GPUs of each node.

    Nodes that are up stand in the level of their free GPUs: word w of level f has bit b set exactly when node 64 w + b is up
    and has f GPUs free. So the best fit for a share of s GPUs is the lowest bit of the first level from s on that has one.

    Invariants: `population[f]` counts the bits of level f; `total` is what the nodes that are up have free together; a
    node that is down is in no level, while its `free` is kept up to date.
    """

    def __init__(self, gpus: Sequence[int]) -> None:
        """Begin with nodes of so many GPUs each, all up and free."""
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
        self.used = array("q", bytes(16 * (self.top + 1)))
        self.chosen = array("q", bytes(8 * self.num_nodes))
        self.chosen_gpus = array("q", bytes(8 * self.num_nodes))

    def divide(self, shares: Sequence[int], counts: Sequence[int]) -> None:
        """Set how jobs are divided: size k has counts[2k] shares of shares[2k] GPUs, then counts[2k+1] of shares[2k+1].

        A size that fits on no state of the cluster has counts of 0.
        """
        self.num_sizes = len(shares) // 2
        self.shares = array("q", shares)
        self.counts = array("q", counts)

    def share_division(self, other: NodePool) -> None:
        """Divide jobs as the other pool does."""
        self.num_sizes = other.num_sizes
        self.shares = other.shares
        self.counts = other.counts

    def set_up(self, node: int, up: int) -> None:
        """Let the node take jobs from now on (1) or not (0)."""
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
        """Take free GPUs of the node; a negative number returns them."""
        before = self.free[node]
        after = before - gpus
        self.free[node] = after
        if self.up[node]:
            word = node // 64
            bit = _bit(node % 64)
            self.levels[before * self.words + word] ^= bit
            self.levels[after * self.words + word] ^= bit
            self.population[before] -= 1
            self.population[after] += 1
            self.total -= gpus

    def place(self, size: int, gpus: int, rule: int) -> int:
        """Choose nodes for a job of that size and number of GPUs; take nothing.

        Return the number of nodes, which are in `chosen` and `chosen_gpus`; 0 if the job does not fit.
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
        """Choose nodes for equal shares after those already found; return the new total, -1 if nodes do not suffice.

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
        """Choose the nodes with the most free GPUs, lowest index on ties; the caller knows that the total suffices."""
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
        """Take the nodes that the last `place` chose."""
        for index in range(found):
            self.take(self.chosen[index], self.chosen_gpus[index])

    def take_counted(self, size: int) -> int:
        """Take GPUs for a job of that size in `population` and `total` alone; return 0, with nothing changed, if it does not fit.

        By consolidated best fit these do not depend on which nodes of a level are chosen. Until they are copied from another pool,
        no node may be placed on or taken.
        """
        population = self.population
        part = 2 * size
        share = self.shares[part]
        if self.counts[part] != 1 or self.counts[part + 1] != 0:
            return self._take_several(part)
        for level in range(share, self.top + 1):
            if population[level] > 0:
                population[level] -= 1
                population[level - share] += 1
                self.total -= share
                return 1
        return 0

    def _take_several(self, first: int) -> int:
        """Do what `take_counted` does for a job of several shares, which go to different nodes."""
        population = self.population
        width = self.top + 1
        for place in range(2 * width):
            self.used[place] = 0
        gpus = 0
        missing = 0
        for part in range(2):
            share = self.shares[first + part]
            missing = self.counts[first + part]
            gpus += share * missing
            for level in range(share, width):
                if missing == 0:
                    break
                nodes = min(missing, population[level])
                population[level] -= nodes
                self.used[part * width + level] = nodes
                missing -= nodes
            if missing > 0:
                break
        for part in range(2):
            share = self.shares[first + part]
            for level in range(width):
                nodes = self.used[part * width + level]
                if nodes > 0:
                    population[level if missing > 0 else level - share] += nodes
        if missing > 0 or gpus == 0:
            return 0
        self.total -= gpus
        return 1

    def copy_counts(self, other: NodePool) -> None:
        """Copy `population` and `total` of a pool of the same nodes."""
        self.total = other.total
        for level in range(self.top + 1):
            self.population[level] = other.population[level]

    def copy_from(self, other: NodePool) -> None:
        """Copy the state of a pool of the same nodes."""
        self.total = other.total
        # Plain loops: compiled, they are block copies, much faster than slices of so few entries.
        for node in range(self.num_nodes):
            self.free[node] = other.free[node]
            self.up[node] = other.up[node]
        for word in range((self.top + 1) * self.words):
            self.levels[word] = other.levels[word]
        for level in range(self.top + 1):
            self.population[level] = other.population[level]

    def copy(self) -> NodePool:
        """Return an independent copy; the division of jobs is shared."""
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
    """Return the word with only that bit set. The 1 is a variable, because C would shift a literal in 32 bits."""
    one = 1
    return one << place


def _lowest_bit(word: int) -> int:
    """Return the index of the lowest set bit of a 64-bit word that is not 0."""
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
