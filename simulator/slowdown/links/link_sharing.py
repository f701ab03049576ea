"""Link sharing of RL-TAPS (section 4.6.3, equations 12 to 15).

A step computes for tt and reduces for

    rt = sr (1 + (r - 1) / 5) s,        s = min default bandwidth / min run-time bandwidth        (12, 13)

where sr is the ring reduction measured on one rack, a function of GPUs and gradient size; r is the number of racks; both minima are
over the links on the paths between the job's GPUs (14, 15); and a link's run-time bandwidth is its default bandwidth over
the number of jobs that use it. factor = (tt + rt of the reference) / (tt + rt).

The paper measured sr on one network, so that its rt does not depend on how fast links are. Here the bytes of a ring over links that
are slower than the paper's take longer by what that costs (`RingTime.seconds_over`); on its own cluster, and on faster links, rt is
the paper's.

`reference=best`: alone in the fewest racks, and where the rate counts on the fewest nodes. `reference=alone`: alone where it is;
the default beside `locality`.

The links are those between sockets, the NIC of every group that the job has GPUs in, and the uplinks of the switches between its
nodes. The link of a GPU to its socket carries no other job. gpu_groups.py says which groups a job has on a node.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from policies.state.ring_reduction import RingSpeed
from simulator.cluster.topology import Topology, TreeRoutes
from simulator.slowdown.api import Resident
from simulator.slowdown.base import Model
from simulator.slowdown.fitting.held_out import FitReport, report, split
from simulator.slowdown.fitting.least_squares import nonnegative
from simulator.slowdown.gpu_groups import groups_of
from simulator.slowdown.links.link_use import LinkUse
from simulator.slowdown.links.ring import BestRing, ring_speed, sent_bytes
from simulator.slowdown.links.sharers import Sharers
from simulator.slowdown.profiles.model_profiles import ModelProfile, ModelProfiles, RingTime

Links = frozenset[int]
_NO_LINKS: Links = frozenset()


class LinkSharing(Model):
    """Link sharing by the number of jobs on each link.

    Invariants: `_on_node` are a node's jobs by row, each with its GPUs there; `_inside` are the links of a job that
    depend on its groups on a node; `_edges` are all its shared links, and `_links` the same by link.
    """

    def __init__(self, topology: Topology, profiles: ModelProfiles, reference: str = "best") -> None:
        super().__init__()
        self._capacity = topology.capacity
        self._widest = topology.inside.pcie_gbs
        self._links_of_jobs = _LinksOfJobs(topology)
        self._times = _Times(topology, profiles, reference)
        self._links = LinkUse()
        self._sharers = Sharers()
        self._on_node: dict[int, tuple[tuple[int, int], ...]] = {}
        self._edges: dict[int, Links] = {}
        self._inside: dict[tuple[int, int], Links] = {}
        self._alone: dict[int, _Alone] = {}

    def fork(self) -> LinkSharing:
        """Return an independent copy, in time proportional to the running jobs."""
        twin = super().fork()
        twin._links = self._links.copy()
        twin._sharers = self._sharers.fork()
        return twin

    @property
    def sharers(self) -> set[int]:
        """Rows of the jobs that have shared a link, inside a node or between nodes."""
        self._refresh()
        return self._sharers.rows()

    def _entered(self, resident: Resident) -> None:
        job, nodes = resident.job, resident.nodes
        self._alone[job] = self._times.alone(resident)
        self._edges[job] = _NO_LINKS
        self._move(job, _NO_LINKS, self._links_of_jobs.between(nodes))
        for node, count in zip(nodes, resident.counts, strict=True):
            me = (job, count)
            jobs = self._on_node.get(node, ())
            place = bisect(jobs, me)
            self._on_node[node] = (*jobs[:place], me, *jobs[place:])
            self._inside[job, node] = _NO_LINKS
            self._lay_out(node, place)

    def _left(self, resident: Resident) -> None:
        job = resident.job
        self._sharers.leave(job)
        self._links.remove(job, self._edges[job])
        for link in self._edges.pop(job):
            self._stale.update(self._links.jobs.get(link, ()))
        for node, count in zip(resident.nodes, resident.counts, strict=True):
            del self._inside[job, node]
            jobs = self._on_node[node]
            place = jobs.index((job, count))
            if len(jobs) == 1:
                del self._on_node[node]
            else:
                self._on_node[node] = jobs[:place] + jobs[place + 1 :]
                self._lay_out(node, place)
        del self._alone[job]

    def _lay_out(self, node: int, first: int) -> None:
        """Recompute the links of this node that jobs use, from the job at `first` on; the groups of earlier jobs stay."""
        jobs = self._on_node[node]
        if first == len(jobs):
            return
        occupied = self._links_of_jobs.groups(node, tuple([count for _, count in jobs]))
        for place in range(first, len(jobs)):
            job = jobs[place][0]
            now = self._links_of_jobs.inside(node, occupied[place], len(self._residents[job].nodes) > 1)
            before = self._inside[job, node]
            if now != before:
                self._inside[job, node] = now
                self._move(job, before, now)

    def _move(self, job: int, before: Links, now: Links) -> None:
        """Change the links of a job from `before` to `now`; mark it and all jobs on these links as stale."""
        gone, new = before - now, now - before
        self._links.remove(job, gone)
        self._links.add(job, new)
        self._edges[job] = self._edges[job] - gone | new
        self._stale.add(job)
        for link in gone | new:
            self._stale.update(self._links.jobs.get(link, ()))

    def _computed(self, resident: Resident) -> float:
        capacity, users = self._capacity, self._links.jobs
        single = multi = self._widest
        most = 1
        for link in self._edges[resident.job]:
            gbs, jobs = capacity[link], len(users[link])
            single = min(single, gbs)
            multi = min(multi, gbs / jobs)
            most = max(most, jobs)
        if most > 1:
            self._sharers.add(resident.job)
        return self._alone[resident.job].factor(single / multi)


class _LinksOfJobs:
    """The links that jobs use. Only its cache changes; copies of a model share it."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._sizes = [topology.group_sizes(node) for node in range(topology.num_nodes)]
        self._by_group = isinstance(topology.routes, TreeRoutes)
        """True if a job leaves its nodes only by the NICs of its groups."""
        self._known: dict[tuple[int, tuple[int, ...], bool], Links] = {}

    def between(self, nodes: Sequence[int]) -> Links:
        """Return the links of a job on these nodes that do not depend on its groups."""
        if len(nodes) == 1:
            return _NO_LINKS
        links = set(self._topology.ring(nodes))
        if self._by_group:
            for node in nodes:
                links.difference_update(self._topology.routes.nics(node))
        return frozenset(links)

    def groups(self, node: int, counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the GPUs that each of a node's jobs occupies in each group, from the GPUs that it occupies on the node."""
        return groups_of(self._sizes[node], counts)

    def inside(self, node: int, occupied: tuple[int, ...], leaves: bool) -> Links:
        """Return the links that depend on the groups that a job occupies on a node; `leaves` is True if it has other nodes."""
        links = self._known.get((node, occupied, leaves))
        if links is None:
            used = [group for group, count in enumerate(occupied) if count]
            found = [self._topology.between_sockets(node)] if len(used) > 1 else []
            if leaves and self._by_group:
                found += [self._topology.nic(node, group) for group in used]
            links = self._known[node, occupied, leaves] = frozenset(found)
        return links


@dataclass(frozen=True, slots=True)
class _Alone:
    """A job's times without other jobs."""

    profile: ModelProfile
    batch: float
    ideal_s: float
    """Seconds of a step at the reference."""
    reduce_s: float
    """Seconds of a reduction as the job is placed."""

    def factor(self, scale: float) -> float:
        """Return the factor if reductions take so many times as long."""
        return min(1.0, self.ideal_s / self.profile.step_s(self.reduce_s * scale, self.batch))


class _Times:
    """Times of jobs without other jobs. Only its cache changes; copies of a model share it."""

    def __init__(self, topology: Topology, profiles: ModelProfiles, reference: str) -> None:
        self._topology = topology
        self._best = BestRing(topology) if reference == "best" else None
        self._profiles = profiles
        self._known: dict[tuple[str, float, int, int, int, RingSpeed], _Alone] = {}

    def alone(self, resident: Resident) -> _Alone:
        """Return the times of that job as placed."""
        racks = len({self._topology.racks[node] for node in resident.nodes})
        speed = ring_speed(self._topology, resident.nodes)
        key = resident.model, resident.batch_size, sum(resident.counts), racks, len(resident.nodes), speed
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._computed(*key)
        return known

    def _computed(self, model: str, batch: float, gpus: int, racks: int, nodes: int, speed: RingSpeed) -> _Alone:
        profile, ring = self._profiles.of(model), self._profiles.ring
        reduce_s = best_s = ring.seconds_over(gpus, profile.bytes, racks, sent_bytes(profile, nodes), speed)
        if self._best is not None:
            fewest = min(racks, -(-self._best.nodes(gpus) // self._best.largest_rack))
            best_s = min(
                reduce_s, ring.seconds_over(gpus, profile.bytes, fewest, *self._best.sent_bytes(profile, gpus))
            )
        return _Alone(profile, batch, profile.step_s(best_s, batch), reduce_s)


@dataclass(frozen=True, slots=True)
class RingRow:
    """One measured ring reduction, alone."""

    gpus: int
    bytes: float
    racks: int
    seconds: float


def fit(rows: Sequence[RingRow], seed: int = 0) -> tuple[RingTime, FitReport]:
    """Fit the two square-root curves to rows in one rack, by the relative error; then the factor for more racks.

    Without rows in several racks, the factor is that of the paper.
    """
    fitted, held_out = split(rows, lambda row: row.seconds, seed)
    in_one = [row for row in fitted if row.racks == 1]
    basis = np.array([[part * sqrt(row.gpus) / row.seconds for part in RingTime.parts(row.bytes)] for row in in_one])
    small, large = nonnegative(basis.reshape(-1, 2), np.ones(len(in_one)))
    time = RingTime(float(small), float(large))
    over = [(row.racks - 1, row.seconds / time.seconds(row.gpus, row.bytes, 1) - 1) for row in fitted if row.racks > 1]
    if over:
        per_rack = sum(more * excess for more, excess in over) / sum(more * more for more, _ in over)
        time = RingTime(time.small_s, time.large_s, max(0.0, per_rack))
    return time, report(
        fitted, held_out, lambda row: time.seconds(row.gpus, row.bytes, row.racks), lambda row: row.seconds, seed
    )
