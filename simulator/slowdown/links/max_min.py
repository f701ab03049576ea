"""Max-min fair sharing of links among jobs on several nodes.

A job's reduction is one flow around a ring (ring.py): at rate x it uses x of every link that the ring passes once each way. Rates
are max-min fair: all rise together until a link is full. With c seconds of computing, t = sent bytes / x of
communicating, of which a share o is hidden behind the share h of computing that can hide it,

    step(x) = c + t - o min(h c, t),        factor = step(reference) / step(x).

`reference=best`: the job alone on the fewest nodes of one rack. `reference=alone`: the job alone on its own nodes, so that only
sharing counts; this is the default beside `locality`, which models the rest.

`sharing=always` (default): every flow counts fully, as if jobs communicated all the time. `sharing=duty`: another's flow
counts by the share d = t / step of time in which it communicates, so that on every link
a_j x_j + sum of d_k a_k min(x_k, x_j) over the others k <= capacity, which is max-min fairness where all d are 1; rates and
shares are found together by a fixed number of rounds from there. Jobs' steps are taken to be out of phase.

`sharing=phases`: jobs compute and send in turns, and only those that send at the same time share (phases.py). Each job begins
at a phase of its own, which follows from its row, so that jobs meet as they come. `sharing=shifts`: the same, but jobs are
shifted as CASSINI does (`policies.speeds.interleaving`): by one shift for each job, and, where they fit beside each other, paced
so that they keep it; where they do not fit, pacing would only leave a full link idle. Jobs without a shift (no common circle, a
loop among the links, little to send) begin as with `phases`. With both, a job's factor is that of its mean step.

A job on one node has no flow: its factor is 1, it affects no other job, and costs a set insertion. The cost of an event is that of
the component of flows that share links with the job's flow, counting only links that could be full.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from policies.speeds.interleaving.circle import Pattern
from policies.speeds.interleaving.interleave import Interleaving, Link, interleave
from simulator.cluster.topology import Topology
from simulator.slowdown.api import Resident
from simulator.slowdown.links.link_use import LinkUse
from simulator.slowdown.links.phases import Sender, step_seconds
from simulator.slowdown.links.progressive_filling import level, max_min
from simulator.slowdown.links.ring import GB, BestRing, ring_gbs, sent_bytes
from simulator.slowdown.links.sharers import Sharers
from simulator.slowdown.profiles.model_profiles import ModelProfile, ModelProfiles

_ROUNDS = 12
"""Rounds of `sharing=duty`; more rounds change no factor by a thousandth."""
_GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it are spread evenly around a circle, whatever their number."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The traffic of a job on several nodes."""

    passes: Mapping[int, float]
    """Use of each link per unit of its rate."""
    alone_gbs: float
    """Its rate without other jobs."""
    sent: float
    """Bytes that each node sends in a step."""
    profile: ModelProfile
    batch_size: float
    reference_s: float
    """Seconds of a step at factor 1."""

    def communicate_s(self, gbs: float) -> float:
        """Return the seconds of its reduction at that rate."""
        return self.sent / (gbs * GB)

    def step_s(self, gbs: float) -> float:
        """Return the seconds of a step at that rate."""
        return self.profile.step_s(self.communicate_s(gbs), self.batch_size)

    def duty(self, gbs: float) -> float:
        """Return the share of time in which it communicates."""
        return min(1.0, self.communicate_s(gbs) / self.step_s(gbs))

    def factor(self, gbs: float) -> float:
        """Return its speed at that rate."""
        return min(1.0, self.reference_s / self.step_s(gbs))


class MaxMin:
    """Flows and their rates.

    Invariants: `_flows` has the running jobs on several nodes, `_use` their links; `_factors` is correct for all flows but those in
    components of `_touched` links; `_news` are the jobs that entered, or whose factor changed, since the last call of `changed`.
    """

    def __init__(
        self, topology: Topology, profiles: ModelProfiles, reference: str = "best", sharing: str = "always"
    ) -> None:
        self._topology = topology
        self._profiles = profiles
        self._reference = reference
        self._sharing = sharing
        self._best = BestRing(topology)
        self._use = LinkUse()
        self._sharers = Sharers()
        self._flows: dict[int, Flow] = {}
        self._factors: dict[int, float] = {}
        self._touched: set[int] = set()
        self._news: set[int] = set()

    @property
    def needs_gpus(self) -> bool:
        """False: links between nodes only."""
        return False

    @property
    def only_between_nodes(self) -> bool:
        """True: a job on one node sends nothing."""
        return True

    def enter(self, resident: Resident) -> None:
        """Add a job, which occupies these GPUs from now on."""
        job = resident.job
        self._news.add(job)
        if len(resident.nodes) > 1:
            flow = self._flow(resident)
            self._flows[job] = flow
            self._factors[job] = 1.0
            self._use.add(job, flow.passes)
            self._touched.update(flow.passes)

    def leave(self, job: int) -> None:
        """Remove a job, which occupies no GPUs any more."""
        self._news.discard(job)
        self._sharers.leave(job)
        flow = self._flows.pop(job, None)
        if flow is not None:
            del self._factors[job]
            self._use.remove(job, flow.passes)
            self._touched.update(flow.passes)

    def changed(self) -> Iterable[int]:
        """Return the running jobs whose factor may have changed since the last call, each once, by row."""
        if self._touched:
            self._refresh()
        news = sorted(self._news)
        self._news.clear()
        return news

    def factor(self, job: int) -> float:
        """Return the throughput of a running job, relative to that without this reason."""
        if self._touched:
            self._refresh()
        return self._factors.get(job, 1.0)

    def fork(self) -> Self:
        """Return an independent copy, in time proportional to the running jobs."""
        twin = copy.copy(self)
        twin._use = self._use.copy()
        twin._sharers = self._sharers.fork()
        twin._flows = self._flows.copy()
        twin._factors = self._factors.copy()
        twin._touched = self._touched.copy()
        twin._news = self._news.copy()
        return twin

    @property
    def sharers(self) -> set[int]:
        """Rows of the jobs that have shared a link between nodes."""
        if self._touched:
            self._refresh()
        return self._sharers.rows()

    def _flow(self, resident: Resident) -> Flow:
        profile = self._profiles.of(resident.model)
        passes = self._topology.ring(resident.nodes)
        alone_gbs = ring_gbs(self._topology.capacity, passes)
        sent = sent_bytes(profile, len(resident.nodes))
        reference_s = sent / (alone_gbs * GB)
        if self._reference == "best":
            reference_s = min(reference_s, self._best.seconds(profile, sum(resident.counts)))
        step_s = profile.step_s(reference_s, resident.batch_size)
        return Flow(passes, alone_gbs, sent, profile, resident.batch_size, step_s)

    # Rates

    def _refresh(self) -> None:
        """Recompute every component of flows that contains a touched link."""
        touched, self._touched = sorted(self._touched), set()
        seen: set[int] = set()
        for link in touched:
            for job in self._use.jobs.get(link, ()):
                if len(self._use.jobs[link]) > 1:
                    self._sharers.add(job)
                if job not in seen:
                    component = self._component(job)
                    seen.update(component)
                    self._settle(component)

    def _component(self, start: int) -> list[int]:
        """Return the flows whose rates may depend on that one's, over shared links that could be full; in order of rows."""
        found = {start}
        open_ = [start]
        looked: set[int] = set()
        while open_:
            for link in self._flows[open_.pop()].passes:
                if link in looked:
                    continue
                looked.add(link)
                jobs = self._use.jobs[link]
                if len(jobs) > 1 and self._could_be_full(link):
                    fresh = [job for job in jobs if job not in found]
                    found.update(fresh)
                    open_.extend(fresh)
        return sorted(found)

    def _could_be_full(self, link: int) -> bool:
        """Return whether its flows, each at its rate alone, would exceed its capacity."""
        flows = self._flows
        most = sum(flows[job].passes[link] * flows[job].alone_gbs for job in self._use.jobs[link])
        return most > self._topology.capacity[link] * (1 + 1e-9)

    def _settle(self, component: list[int]) -> None:
        """Set new factors for a component."""
        flows = {job: self._flows[job] for job in component}
        if len(flows) == 1:
            factors = {job: flow.factor(flow.alone_gbs) for job, flow in flows.items()}
        elif self._sharing in {"phases", "shifts"}:
            factors = self._in_turns(flows)
        else:
            factors = {job: flows[job].factor(gbs) for job, gbs in self._rates(flows).items()}
        for job, factor in factors.items():
            if factor != self._factors[job]:
                self._factors[job] = factor
                self._news.add(job)

    def _contested(self, flows: Mapping[int, Flow]) -> tuple[dict[int, dict[int, float]], dict[int, float]]:
        """Return every flow's links that others use too and that could be full, and the capacities of these links.

        Of links that the same flows pass equally often, only the narrowest counts.
        """
        jobs, capacity = self._use.jobs, self._topology.capacity
        narrowest: dict[tuple[tuple[int, ...], tuple[float, ...]], int] = {}
        for link in dict.fromkeys(link for flow in flows.values() for link in flow.passes):
            on_link = jobs[link]
            if len(on_link) > 1 and self._could_be_full(link):
                alike = (on_link, tuple(flows[job].passes[link] for job in on_link))
                known = narrowest.get(alike)
                if known is None or capacity[link] < capacity[known]:
                    narrowest[alike] = link
        uses: dict[int, dict[int, float]] = {job: {} for job in flows}
        for link in narrowest.values():
            for job in jobs[link]:
                uses[job][link] = flows[job].passes[link]
        return uses, {link: capacity[link] for link in narrowest.values()}

    def _rates(self, flows: Mapping[int, Flow]) -> dict[int, float]:
        """Return the GB/s of every flow."""
        uses, capacity = self._contested(flows)
        rates = max_min(uses, capacity, {job: flow.alone_gbs for job, flow in flows.items()})
        if self._sharing == "duty":
            for _ in range(_ROUNDS):
                duty = {job: flow.duty(rates[job]) for job, flow in flows.items()}
                found = {job: self._beside(job, flows[job], uses, capacity, rates, duty) for job in flows}
                rates = {job: (rates[job] + found[job]) / 2 for job in flows}
        return rates

    def _beside(
        self,
        job: int,
        flow: Flow,
        uses: Mapping[int, Mapping[int, float]],
        capacity: Mapping[int, float],
        rates: Mapping[int, float],
        duty: Mapping[int, float],
    ) -> float:
        """Return the GB/s of a flow while it sends; the others send at those rates for those shares of the time."""
        gbs = flow.alone_gbs
        for link, share in uses[job].items():
            others = [(rates[other], uses[other][link] * duty[other]) for other in self._use.jobs[link] if other != job]
            gbs = min(gbs, level(capacity[link], share, others))
        return gbs

    # Sending in turns

    def _in_turns(self, flows: Mapping[int, Flow]) -> dict[int, float]:
        """Return the factor of every flow, from the mean of its steps beside the others."""
        uses, capacity = self._contested(flows)
        order = _interleaving(flows, uses, capacity) if self._sharing == "shifts" else None
        senders = {}
        for place, (job, flow) in enumerate(flows.items()):
            shift_s = order.shifts_s[place] if order is not None else None
            begin_s = _phase_s(job, flow) if shift_s is None else shift_s
            pace_s = order.periods_s[place] if order is not None and order.fits else 0.0
            senders[job] = _sender(flow, begin_s, pace_s)
        steps = step_seconds(senders, uses, capacity)
        return {job: min(1.0, flow.reference_s / steps[job]) for job, flow in flows.items()}


def _interleaving(
    flows: Mapping[int, Flow], uses: Mapping[int, Mapping[int, float]], capacity: Mapping[int, float]
) -> Interleaving | None:
    """Return CASSINI's shifts of these flows, in their order."""
    patterns = tuple(
        Pattern(flow.step_s(flow.alone_gbs), flow.communicate_s(flow.alone_gbs)) for flow in flows.values()
    )
    links = tuple(
        Link(
            gbs,
            tuple(
                (place, uses[job][link] * flow.alone_gbs)
                for place, (job, flow) in enumerate(flows.items())
                if link in uses[job]
            ),
        )
        for link, gbs in capacity.items()
    )
    return interleave(patterns, links)


def _phase_s(job: int, flow: Flow) -> float:
    """Return the begin of the first send of a job that is not shifted: anywhere in its step."""
    return job * _GOLDEN % 1.0 * flow.step_s(flow.alone_gbs)


def _sender(flow: Flow, begin_s: float, pace_s: float) -> Sender:
    def step_s(send_s: float) -> float:
        return flow.profile.step_s(send_s, flow.batch_size)

    return Sender(flow.communicate_s(flow.alone_gbs), flow.alone_gbs, step_s, begin_s, pace_s)
