"""Predicted speeds of jobs beside each other, from a `ClusterState`. The model keeps track of which jobs run where.

**Links** (RL-TAPS, equations 12 to 15): a step computes for c and reduces for r s, where r is the time of the reduction with all
links for itself, s = min bandwidth / min bandwidth as shared, and a link is shared by the number of jobs on it. The links of a job
on several nodes are their NICs, and the uplinks of their racks if there are several. Speed = step in the fewest racks, alone / step
now. r follows the measured ring (`ProfileTable.ring`), and is longer over slow links; without one, bytes and bandwidth.

**Pairs** (contention_rl, section III): speed = the worst measured ratio beside a job on one of its nodes.

`Law` says which of them count. The results equal those of `simulator.slowdown` with link_sharing and pair_table to the last digit
for networks of racks with one NIC a node and at most two sockets whose link is no narrower than PCIe; switches above racks, several
NICs and wider hosts are not part of a policy's state.

Values that are NaN or missing are replaced by typical ones (`policies.speeds.job_profiles`, `policies.speeds.links`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from policies.model import ClusterState, IntColumn, Placement
from policies.speeds.job_profiles import StepModel, StepModels
from policies.speeds.links import NetworkLinks
from policies.state.pair_ratios import Ratios, key_of
from policies.state.ring_reduction import RingSpeed

_NO_LOSS = 1e-12
"""Losses of speed up to this are rounding errors."""
_MOST = 0.5
"""Share of the pairs of models that must be measured for the table of pairs to count alone."""


class Law(Enum):
    """Ways in which jobs slow each other down."""

    AUTO = "auto"
    """BOTH if pairs and rings were measured; PAIRS if most pairs of the state's models were; else LINKS."""
    LINKS = "links"
    PAIRS = "pairs"
    BOTH = "both"
    """The product of the speeds by links and by pairs."""
    NOTHING = "nothing"
    """No slowdown: for controls that ignore contention."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of starting a job, in speeds: 1 is the speed of a job alone and well placed."""

    own: float
    """Speed that the job would have."""
    taken: float
    """Sum of the speeds that other jobs would lose."""
    loser: int = -1
    """Row of the job that would lose most; -1: none."""
    alone: float = 1.0
    """Speed that the job would have there if no other job ran."""

    @property
    def net(self) -> float:
        """Gain of the cluster."""
        return self.own - self.taken

    @property
    def costs_speed(self) -> bool:
        """True if any job loses speed to another, the job itself included."""
        return self.taken > _NO_LOSS or self.own < self.alone - _NO_LOSS


@dataclass(slots=True)
class _Run:
    """A job with its placement. Invariants: `shared` is the least bandwidth of its links as they are shared now, `alone` the least
    if the job had them all; `speed` is its speed by both laws, `ratio` that by pairs."""

    links: tuple[int, ...]
    nodes: tuple[int, ...]
    key: str
    timing: _Timing
    alone: float
    shared: float = math.inf
    ratio: float = 1.0
    speed: float = 1.0

    def by_links(self, shared: float) -> float:
        """Return the speed with so much bandwidth of the narrowest link."""
        return self.timing.speed(self.alone / shared) if self.links else self.timing.undisturbed

    def copy(self) -> _Run:
        """Return an independent copy."""
        return _Run(self.links, self.nodes, self.key, self.timing, self.alone, self.shared, self.ratio, self.speed)


class _Timing:
    """Time of one job's steps at one shape."""

    __slots__ = ("_ideal_s", "_reduce_s", "_step_model", "undisturbed")

    def __init__(self, step_model: StepModel, ideal_s: float, reduce_s: float) -> None:
        self._step_model, self._ideal_s, self._reduce_s = step_model, ideal_s, reduce_s
        self.undisturbed = self.speed(1.0)

    def speed(self, scale: float) -> float:
        """Return the speed when reducing takes `scale` times as long."""
        return min(1.0, self._ideal_s / self._step_model.step_s(self._reduce_s * scale))


class ContentionModel:
    """Speeds of the jobs that run, and of those that might. `add`, `remove` and `effect` take time in proportion to the jobs on the
    nodes concerned.

    Invariants: `_runs` are the jobs that run or were added; `_users[l]` are those on link l, `_on[n]` those on node n.

    Bound: lives for one decision.
    """

    def __init__(
        self,
        state: ClusterState,
        law: Law = Law.AUTO,
        job_values: Sequence[float] | None = None,
        staying: IntColumn | None = None,
    ) -> None:
        """Begin with the running jobs in `staying` (rows; default: all that run).

        The loss of another job counts by its value over that of the job that causes it; `job_values` has one entry per job. None:
        all values are equal.
        """
        self._job_values = job_values
        self._network = NetworkLinks(state)
        self._step_models = StepModels(state)
        ratios = _ratios(state, law)
        links = law in {Law.LINKS, Law.BOTH} or ratios is None or (law is Law.AUTO and _has_ring(state))
        self._links = links and law is not Law.NOTHING
        self._ratios = ratios
        self._users: dict[int, dict[int, _Run]] = {}
        self._on: dict[int, dict[int, _Run]] = {}
        self._runs: dict[int, _Run] = {}
        self._timings: dict[tuple[int, int, int, RingSpeed], _Timing] = {}
        self._shapes: dict[tuple[int, Placement], _Run] = {}
        """The job as it would run alone, for each kind and placement; copies of the model share this cache."""
        for row in (state.running if staying is None else staying).tolist():
            placement = state.jobs.placement(row)
            if placement is not None:
                self._enter(row, self._run(row, placement).copy())
        self._settle(self._runs)

    def copy(self) -> ContentionModel:
        """Return an independent copy; it costs time in proportion to the running jobs."""
        twin = copy.copy(self)
        twin._runs = runs = {row: run.copy() for row, run in self._runs.items()}
        twin._users = {link: {row: runs[row] for row in rows} for link, rows in self._users.items()}
        twin._on = {node: {row: runs[row] for row in rows} for node, rows in self._on.items()}
        return twin

    @property
    def by_links(self) -> bool:
        """True if sharing links counts."""
        return self._links

    @property
    def by_pairs(self) -> bool:
        """True if pairs count."""
        return self._ratios is not None

    def is_typical(self, row: int) -> bool:
        """Return whether that job's model was not measured, so that typical values are used."""
        return row in self._step_models.unmeasured

    def kind(self, row: int) -> tuple[int, float]:
        """Return the job's kind: jobs of one kind and placement have the same effect, except for their weights."""
        return self._step_models.kind(row)

    def crowd(self, node: int) -> int:
        """Return the number of jobs that send over the node's NIC."""
        return len(self._users.get(node, ()))

    def speed(self, row: int) -> float:
        """Return the speed of a job that runs or was added."""
        return self._runs[row].speed

    def at_stake(self, row: int, gpus: int) -> float:
        """Return the speed that such a job would lose with half of its links, on the fewest nodes, at least two."""
        nodes = max(2, self._network.fewest_nodes(gpus))
        timing = self._timing(row, gpus, nodes, 1, self._network.usual_speed(1, self._step_models.ring))
        return timing.undisturbed - timing.speed(2.0)

    def effect(self, row: int, placement: Placement) -> Effect:
        """Return the effect of starting that job there."""
        run = self._run(row, placement)
        hit: dict[int, list[float]] = {}
        shared = self._share(run, hit)
        own = run.by_links(shared) if self._links else 1.0
        if self._ratios is not None:
            own *= self._meet(run, self._ratios, hit)
        taken, most, loser = 0.0, _NO_LOSS, -1
        job_values = self._job_values
        for other, (left, ratio) in hit.items():
            its = self._runs[other]
            speed = (its.by_links(left) if self._links else 1.0) * ratio
            lost = its.speed - speed
            if job_values is not None:
                lost *= job_values[other] / job_values[row]
            taken += lost
            if lost > most:
                most, loser = lost, other
        return Effect(own, taken, loser, run.timing.undisturbed if self._links else 1.0)

    def add(self, row: int, placement: Placement) -> None:
        """Let that job run there from now on."""
        run = self._run(row, placement).copy()
        self._enter(row, run)
        self._settle({row, *self._near(run)})

    def remove(self, row: int) -> None:
        """Remove that job, which runs no more."""
        run = self._runs.pop(row)
        for link in run.links:
            del self._users[link][row]
        for node in run.nodes:
            del self._on[node][row]
        self._settle(self._near(run))

    def _share(self, run: _Run, hit: dict[int, list[float]]) -> float:
        """Return the bandwidth that a newcomer would have; put into `hit` what would be left to the jobs that share its links."""
        shared, capacity = run.alone, self._network.capacity
        for link in run.links:
            users = self._users.get(link)
            left = capacity[link] / (len(users) + 1) if users else capacity[link]
            shared = min(shared, left)
            for row, other in (users or {}).items():
                entry = hit.get(row)
                if entry is None:
                    entry = hit[row] = [other.shared, other.ratio]
                entry[0] = min(entry[0], left)
        return shared

    def _meet(self, run: _Run, ratios: Ratios, hit: dict[int, list[float]]) -> float:
        """Return the newcomer's worst ratio; put into `hit` the ratios of the jobs that it would meet."""
        worst = 1.0
        for node in run.nodes:
            for row, other in self._on.get(node, {}).items():
                worst = min(worst, ratios.of(run.key, other.key))
                entry = hit.get(row)
                if entry is None:
                    entry = hit[row] = [other.shared, other.ratio]
                entry[1] = min(entry[1], ratios.of(other.key, run.key))
        return worst

    def _enter(self, row: int, run: _Run) -> None:
        self._runs[row] = run
        for link in run.links:
            self._users.setdefault(link, {})[row] = run
        for node in run.nodes:
            self._on.setdefault(node, {})[row] = run

    def _near(self, run: _Run) -> set[int]:
        """Return the jobs on its links, and where pairs count on its nodes."""
        near = {row for link in run.links for row in self._users.get(link, ())}
        if self._ratios is not None:
            near.update(row for node in run.nodes for row in self._on.get(node, ()))
        return near

    def _settle(self, rows: Iterable[int]) -> None:
        """Compute the speeds of these jobs anew."""
        capacity, users, ratios = self._network.capacity, self._users, self._ratios
        for row in rows:
            run = self._runs[row]
            run.shared = min([run.alone, *(capacity[link] / len(users[link]) for link in run.links)])
            if ratios is not None:
                near = {other: its.key for node in run.nodes for other, its in self._on[node].items() if other != row}
                run.ratio = min([ratios.of(run.key, key) for key in near.values()], default=1.0)
            run.speed = (run.by_links(run.shared) if self._links else 1.0) * run.ratio

    def _run(self, row: int, placement: Placement) -> _Run:
        """Return the job as it would run there alone; callers must not change it."""
        kind = self._step_models.ident(row), placement
        run = self._shapes.get(kind)
        if run is not None:
            return run
        nodes, network = placement.nodes, self._network
        links = network.links(nodes) if self._links else ()
        gpus, racks = placement.num_gpus, network.racks(nodes)
        speed = network.speed(links, self._step_models.ring)
        alone = min(network.widest, speed.narrowest)
        key = ""
        if self._ratios is not None:
            key = f"{self._step_models.name(row)},{gpus},{len(nodes)}"
        run = self._shapes[kind] = _Run(links, nodes, key, self._timing(row, gpus, len(nodes), racks, speed), alone)
        return run

    def _timing(self, row: int, gpus: int, nodes: int, racks: int, speed: RingSpeed) -> _Timing:
        ring = self._step_models.ring
        key = self._step_models.ident(row), gpus, nodes << 20 | racks, speed
        timing = self._timings.get(key)
        if timing is None:
            step_model = self._step_models.of(row)
            reduce_s = self._network.reduce_s(step_model, gpus, nodes, racks, speed, ring)
            best_s = min(reduce_s, self._network.best_reduce_s(step_model, gpus, racks, ring))
            timing = self._timings[key] = _Timing(step_model, step_model.step_s(best_s), reduce_s)
        return timing


def _has_ring(state: ClusterState) -> bool:
    return state.profiles is not None and state.profiles.ring is not None


def _ratios(state: ClusterState, law: Law) -> Ratios | None:
    """Return the table of pairs, if it counts."""
    profiles = state.profiles
    if law in {Law.LINKS, Law.NOTHING} or profiles is None or profiles.pairs is None:
        return None
    ratios = Ratios(profiles.pairs.table())
    if law is not Law.AUTO or profiles.ring is not None:
        return ratios
    here = {key_of(profiles.models[model]) for model in set(profiles.of_job.tolist()) if model >= 0}
    measured = sum(ratios.measured(target, other) for target in here for other in here)
    return ratios if measured >= _MOST * len(here) ** 2 else None
