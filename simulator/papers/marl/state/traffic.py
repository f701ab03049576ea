"""Transfers between workers and parameter servers over the network, and the time that they take in a step.

Every worker exchanges 1/p of its gradients with each of its job's p servers: it pushes them and pulls as many, at the same time in
the two directions of each link. The time is that of the slowest pair, its bytes over the bottleneck bandwidth of its path (section
VI-A). The paper does not say how pairs share a link; here all pairs of running jobs whose paths pass it share it equally, so

    seconds of a step = gradients / p  max over the links of the job's pairs (pairs on the link / GB/s of the link).

Transfers inside a server are part of the computing time of a step, whose slowdown by PCIe the interference model has.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from simulator.papers.marl.state.data_center import DataCenter
from simulator.papers.marl.state.jobs import Floats, Ints, Jobs


class Traffic:
    """Pairs of tasks on every link. Invariant: `pairs[l]` counts the pairs of the jobs that were added and not removed."""

    def __init__(self, center: DataCenter, jobs: Jobs) -> None:
        self._center = center
        self._jobs = jobs
        self.pairs = np.zeros(len(center.links_gbs) + 1)
        """Pairs on each link; the last entry stands for no link."""
        self._per_gbs = np.append(1.0 / center.links_gbs, 0.0)
        self.version = 0
        """Changes of `pairs`: equal numbers, equal pairs."""
        self._links: dict[int, tuple[Ints, Floats]] = {}
        """Links of each job, with the number of its pairs on each."""

    def add(self, job: int, workers: dict[int, int], servers: dict[int, int]) -> None:
        """Let a job transfer between the servers that have its workers and those that have its parameter servers."""
        found = links_of(self._center, workers, servers)
        links = np.array([*found, len(self.pairs) - 1])
        counts = np.array([*found.values(), 0.0])
        self._links[job] = links, counts
        self.pairs[links] += counts
        self.version += 1

    def remove(self, job: int) -> None:
        """Let a job transfer nothing."""
        links, counts = self._links.pop(job)
        self.pairs[links] -= counts
        self.version += 1

    def seconds(self, rows: Ints) -> Floats:
        """Return the seconds that transfers take in a step of each of these jobs."""
        if not len(rows):
            return np.zeros(0)
        links = [self._links[job][0] for job in rows.tolist()]
        first = np.cumsum([0, *(len(each) for each in links[:-1])])
        of_all = np.concatenate(links)
        slowest = np.maximum.reduceat(self.pairs[of_all] * self._per_gbs[of_all], first)
        return self.seconds_of(rows, slowest)

    def seconds_of(self, rows: Ints, pairs_per_gbs: Floats) -> Floats:
        """Return the seconds of a step where that is the most pairs per GB/s on a link of each job."""
        jobs = self._jobs
        found: Floats = jobs.gradients_gb[rows] / jobs.servers[rows] * pairs_per_gbs
        return found

    def worst_with(self, found: dict[int, int]) -> float:
        """Return the most pairs per GB/s on these links, if so many pairs were added to each; 0 without links."""
        return max(((self.pairs[link] + more) * self._per_gbs[link] for link, more in found.items()), default=0.0)


def links_of(center: DataCenter, workers: dict[int, int], servers: dict[int, int]) -> dict[int, int]:
    """Return the number of pairs on each link of the paths between these workers and parameter servers, by server."""
    found: Counter[int] = Counter()
    for source, some in workers.items():
        for target, others in servers.items():
            if source != target:
                for link in center.topology.path(source, target):
                    found[link] += some * others
    return found
