"""How well the sending of jobs fits on the links between nodes, as CASSINI scores it, from a `ClusterState`."""

from __future__ import annotations

from collections.abc import Mapping

from policies.model import ClusterState, Placement
from policies.speeds.interleaving.circle import Pattern
from policies.speeds.interleaving.interleave import Link, interleave
from policies.speeds.job_profiles import StepModels
from policies.speeds.links import NetworkLinks

_FULL = 1.0 + 1e-9


class LinkFit:
    """The jobs on each link, and the scores of jobs that might join them.

    Invariants: `_users[l]` are the jobs on link l, each with the GB/s that it takes while it sends without others; `_links[j]` are
    the links of job j, and `_patterns[j]` is when it sends.

    Bound: the jobs that it has, and the links.
    """

    def __init__(self, state: ClusterState, staying: Mapping[int, Placement]) -> None:
        """Begin with the jobs in `staying`, by row."""
        self._network = NetworkLinks(state)
        self._models = StepModels(state)
        self._users: dict[int, dict[int, float]] = {}
        self._links: dict[int, tuple[int, ...]] = {}
        self._patterns: dict[int, Pattern] = {}
        for row, placement in staying.items():
            self.add(row, placement)

    def add(self, row: int, placement: Placement) -> None:
        """Let that job run there."""
        links = self._network.links(placement.nodes)
        if links:
            self._links[row] = links
            self._patterns[row] = self._pattern(row, placement)
            rate = min(self._network.widest, self._network.speed(links, self._models.ring).narrowest)
            for link in links:
                self._users.setdefault(link, {})[row] = rate

    def remove(self, row: int) -> None:
        """Remove that job."""
        for link in self._links.pop(row, ()):
            del self._users[link][row]
        self._patterns.pop(row, None)

    def crowd(self, node: int) -> int:
        """Return the number of jobs that send over the node's NIC."""
        return len(self._users.get(node, ()))

    def step_s(self, row: int, placement: Placement) -> float:
        """Return the seconds of that job's step there, without other jobs."""
        return self._pattern(row, placement).period_s

    def score(self, row: int, placement: Placement, *, least: bool) -> float | None:
        """Return the mean (or the least) score of the links that jobs share and that are connected with that job's, if it runs
        there; 1 where none could be full, None where the jobs cannot be shifted: no common circle, or a loop."""
        if not self._network.links(placement.nodes):
            return 1.0
        self.add(row, placement)
        try:
            jobs, links = self._component(row)
            place_of = {job: place for place, job in enumerate(jobs)}
            order = interleave(
                tuple(self._patterns[job] for job in jobs),
                tuple(
                    Link(
                        self._network.capacity[link],
                        tuple((place_of[job], rate) for job, rate in sorted(self._users[link].items())),
                    )
                    for link in links
                ),
            )
        finally:
            self.remove(row)
        return None if order is None else order.least if least else order.mean

    def _component(self, row: int) -> tuple[list[int], list[int]]:
        """Return the jobs that are connected with that one by links that could be full, and these links, both in order."""
        jobs, links, open_ = {row}, set(), [row]
        while open_:
            for link in self._links[open_.pop()]:
                users = self._users[link]
                if link not in links and sum(users.values()) > self._network.capacity[link] * _FULL:
                    links.add(link)
                    open_ += [job for job in users if job not in jobs]
                    jobs.update(users)
        return sorted(jobs), sorted(links)

    def _pattern(self, row: int, placement: Placement) -> Pattern:
        """Return when that job would send there, alone."""
        network, nodes, model = self._network, placement.nodes, self._models.of(row)
        ring = self._models.ring
        speed = network.speed(network.links(nodes), ring)
        send_s = network.reduce_s(model, placement.num_gpus, len(nodes), network.racks(nodes), speed, ring)
        return Pattern(model.step_s(send_s), send_s)
