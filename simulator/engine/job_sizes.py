"""The job sizes that occur in a trace, and how each size is divided among nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from policies.model import BoolColumn, Split
from policies.placement.requests import Parts, divide
from policies.rule import Layout
from simulator.cluster.cluster import Cluster
from simulator.kernel.nodes import NodePool
from simulator.traces.trace import Trace


class JobSizes:
    """Job sizes: jobs of one size are divided alike (`policies.placement.requests.divide`), so each size is divided once.

    `of[job]` is the number of a job's size.
    """

    def __init__(self, trace: Trace, cluster: Cluster) -> None:
        """Collect the sizes of the trace's jobs."""
        values, of = np.unique(trace.num_gpus, return_inverse=True)
        self.gpus: list[int] = values.tolist()
        self.of = of.astype(np.int64)
        self._cluster = cluster

    def possible(self, layout: Layout) -> BoolColumn:
        """Return which jobs would fit on the empty cluster, by that rule of placement."""
        parts = self._parts(self._cluster.gpus)
        most = self._cluster.num_gpus
        fits = [gpus <= most and (layout == Layout.ANYWHERE or bool(parts[gpus])) for gpus in self.gpus]
        return np.array(fits, dtype=np.bool_)[self.of]

    def always_possible(self) -> BoolColumn:
        """Return which jobs would fit on the empty cluster by every rule of placement."""
        return self.possible(Layout.CONSOLIDATED) & self.possible(Layout.ANYWHERE)

    def divide(self, pool: NodePool) -> None:
        """Set in the pool how each size is divided among the nodes that are up."""
        up = (gpus for gpus, is_up in zip(self._cluster.gpus, pool.up, strict=True) if is_up)
        shares: list[int] = []
        counts: list[int] = []
        for parts in self._parts(up).values():
            for share, count in [*parts, (0, 0), (0, 0)][:2]:
                shares.append(share)
                counts.append(count)
        pool.divide(shares, counts)

    def _parts(self, nodes: Iterable[int]) -> dict[int, Parts]:
        """Return the shares of each size on nodes of so many GPUs; empty where a size does not fit."""
        usable = Counter(nodes)
        return {gpus: divide(gpus, Split.ANY, 1, gpus, 0, usable) for gpus in self.gpus}
