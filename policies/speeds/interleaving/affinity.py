"""CASSINI's affinity graph: one time shift for each job, from its shifts on every link.

Source: CASSINI (NSDI 2024), its affinity graph and the theorem on it. The graph has jobs on one side and links on the other; the
edge of job j and link l has the weight t(j, l), the shift of j that suits l. A link does not care if all its jobs are shifted
alike. So, going around a graph without loops, the first job has the shift 0, and job k beside job j on link l has

    t(k) = t(j) - t(j, l) + t(k, l)   modulo the period of k.

Then the shifts of the jobs of each link differ from its own by one common delay. A graph with a loop has no such shifts in general.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence


def time_shifts(links: Sequence[Mapping[int, float]], periods_s: Mapping[int, float]) -> dict[int, float] | None:
    """Return the shift of each job in seconds, from 0 to its period; None if the graph has a loop.

    `links[l][j]` is t(j, l). The job with the smallest number of each connected part has the shift 0.
    """
    links_of: dict[int, list[int]] = defaultdict(list)
    for link, weights in enumerate(links):
        for job in weights:
            links_of[job].append(link)
    shifts: dict[int, float] = {}
    passed: set[int] = set()
    for first in sorted(periods_s):
        if first in shifts:
            continue
        shifts[first] = 0.0
        open_ = deque([first])
        while open_:
            job = open_.popleft()
            for link in links_of[job]:
                if link in passed:
                    continue
                passed.add(link)
                weights = links[link]
                for other, weight in weights.items():
                    if other == job:
                        continue
                    if other in shifts:
                        return None
                    shifts[other] = (shifts[job] - weights[job] + weight) % periods_s[other]
                    open_.append(other)
    return shifts
