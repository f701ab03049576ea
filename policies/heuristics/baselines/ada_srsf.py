"""Ada-SRSF: shortest remaining service first, on the nodes with the least work, and a job shares a link only where sharing pays.

Source: Wang, Shi, Wang and Chu, "Communication contention aware scheduling of multiple deep learning training jobs", arXiv
2002.10105. Its three parts:

- **SRSF**: jobs with the least remaining time x GPUs first.
- **LWF-k**: a job of at most k GPUs takes the GPUs with the least work left; a larger one is consolidated on the servers with the
  least work.
- **AdaDUAL**: a transfer of M bytes begins at once on idle links. Where one other transfer with M' bytes left is under way, it
  begins if M < M' b / (2 (b + eta)), where b is the time of a byte and eta the time of a byte that sharing adds; else it waits. It
  never becomes the third on a link. For two transfers this gives the least mean time of completion.

Here jobs communicate in every step, and slow each other down by the share of the links that they have; no transfer can be put off
alone. So the rule decides about the start of a job, and M is all that the job has still to send: bytes of a step x steps left.
Links that two jobs share lose nothing, so eta is 0 and the threshold 1/2. Other choices:

- GPUs are not shared. A job of at most k GPUs takes them one by one from the nodes with the least work, its own work included.
  A larger job goes to the node with the least work that holds it; where none does, it takes all free GPUs of the node with the
  least work, then of the next;
- where AdaDUAL refuses these nodes, consolidated best fit is tried, and then the job waits;
- jobs are stopped for others, as by `srsf`: in the paper, jobs on one GPU take turns by their remaining service. No job is stopped
  because of links;
- a job without an estimate comes last. Its work counts as the longest of the others, and it never shares a link.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, Placement
from policies.options import number, whole
from policies.ordering.run_rule import order_keys
from policies.ordering.select_by_total import select_by_total
from policies.placement.best_fit import Capacity, Fit
from policies.placement.dividing import Shares, in_order
from policies.placement.paper_rules import loosely, rounded, worker_by_worker
from policies.placement.rules import PlacementRule
from policies.rule import Discipline, Order, Rule
from policies.selection import active, by
from policies.speeds.job_profiles import StepModels
from policies.speeds.links import NetworkLinks

_RULE = Rule(Order.REMAINING_GPUS, Discipline.SELECT)
_MOST_ON_A_LINK = 2


class AdaSrsf:
    """Runs jobs with the smallest remaining duration times GPUs, on the nodes with the least work; few of them share links."""

    spec = PolicySpec(
        name="ada-srsf",
        source="Ada-SRSF with LWF-k and AdaDUAL (Wang et al., arXiv 2002.10105)",
        preempts=True,
        needs=frozenset({"duration_estimate", "profile"}),
    )

    def __init__(self, k: int = 1, threshold: float = 0.5) -> None:
        """Jobs of more than `k` GPUs are consolidated. A job shares a link if it has less to send than `threshold` times what the
        other has left; 0: no link is shared."""
        self._k = whole("k", k, least=0)
        self._threshold = number("threshold", threshold, unit="times what the other job has to send")

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order by GPUs; place the newcomers where their links allow it."""
        remaining_s = _with_estimates(state)
        network = NetworkLinks(state)
        unsent = _UnsentBytes(state, network)
        waits: dict[int, str] = {}

        def claim(base: Capacity, kept: Mapping[int, Placement], newcomers: list[int]) -> dict[int, Fit]:
            gate = _AdaDual(network, unsent, self._threshold, kept)
            least_work = _LeastWork(state, remaining_s, self._k, kept)
            fits: dict[int, Fit] = {}
            for row in newcomers:
                options = [place for place in (least_work.rule.place(base, row), base.place(row)) if place is not None]
                allowed = next((place for place in options if not gate.refuses(row, place)), None)
                if allowed is not None:
                    fits[row] = least_work.rule.take(base, row, allowed)
                    gate.add(row, allowed)
                elif options:
                    waits[row] = gate.refuses(row, options[0])
            return fits

        order = by(order_keys(_RULE, state), active(state))
        decision = select_by_total(state, order, claim, _explain)
        waits = {row: why for row, why in waits.items() if row not in decision.allocation}
        return replace(decision, reasons={**decision.reasons, **waits})


def _explain(state: ClusterState, fit: Fit) -> str:
    return PlacementRule("least work", lambda _capacity, _row: None).explain(state, fit)


def _with_estimates(state: ClusterState) -> list[float]:
    """Return the remaining seconds of each job; the longest of the others where it is not known (1 where none is)."""
    remaining = state.remaining_s
    known = np.isfinite(remaining)
    longest = float(remaining[known].max()) if known.any() else 1.0
    filled: list[float] = np.where(known, remaining, longest).tolist()
    return filled


class _UnsentBytes:
    """Bytes that each job has still to reduce, worked out when asked for: bytes of a step x steps left at its best placement.

    Bound: lives for one decision.
    """

    def __init__(self, state: ClusterState, network: NetworkLinks) -> None:
        self._gpus = state.jobs.num_gpus
        self._left_s = state.remaining_s
        self._racks = len(state.nodes)
        self._network = network
        self._models = StepModels(state)
        self._rates: dict[tuple[int, int], float] = {}

    def __getitem__(self, row: int) -> float:
        gpus = int(self._gpus[row])
        kind = self._models.ident(row), gpus
        if kind not in self._rates:
            model = self._models.of(row)
            reduce_s = self._network.best_reduce_s(model, gpus, self._racks, self._models.ring)
            self._rates[kind] = model.bytes / model.step_s(reduce_s)
        return self._rates[kind] * float(self._left_s[row])


class _LeastWork:
    """LWF-k for one decision, while capacity only shrinks.

    Invariant: `_work[n]` is the remaining seconds x GPUs on node n of all jobs that stay or were placed. `_least` has, for each
    class of jobs, a heap with every node that has room for a GPU of one, by its work or less: work only grows.

    Bound: lives for one decision.
    """

    def __init__(self, state: ClusterState, remaining_s: list[float], k: int, staying: Mapping[int, Placement]) -> None:
        self._work = [0.0] * len(state.nodes)
        self._remaining_s = remaining_s
        self._k = k
        self._least: dict[int, list[tuple[float, int]]] = {}
        for row, placement in staying.items():
            self._add(row, placement)
        self.rule = PlacementRule("least work", loosely(self._shares), self._add)

    def _add(self, row: int, placement: Placement) -> None:
        for node, gpus in placement.items():
            self._work[node] += gpus * self._remaining_s[row]

    def _shares(self, capacity: Capacity, row: int, gpus: int) -> Shares | None:
        if gpus == 1 and self._k:
            return self._one_gpu(capacity, row)
        if gpus <= self._k:
            own = self._remaining_s[row]
            return worker_by_worker(capacity, row, gpus, lambda node, worker: self._work[node] + (worker - 1) * own)
        rooms = sorted(
            capacity.rooms(row), key=lambda room: self._work[room[0]]
        )  # ties keep their order: the freest first
        whole_job = next((node for node, room in rooms if room >= gpus), None)
        return [(whole_job, gpus)] if whole_job is not None else in_order(rooms, gpus, 0, gpus)

    def _one_gpu(self, capacity: Capacity, row: int) -> Shares | None:
        """Return what `worker_by_worker` would, without a look at every node."""
        key = capacity.requests.keys[row]
        heap = self._least.get(key)
        if heap is None:
            heap = self._least[key] = [(rounded(self._work[node]), node) for node, _ in capacity.rooms(row)]
            heapq.heapify(heap)
        while heap:
            work, node = heap[0]
            now = rounded(self._work[node])
            if not capacity.room(row, node):
                heapq.heappop(heap)
            elif work != now:
                heapq.heapreplace(heap, (now, node))
            else:
                return [(node, 1)]
        return None


@dataclass
class _AdaDual:
    """The jobs on each link, and the rule by which others may join them.

    Invariant: `_users[l]` are the jobs of several nodes that use link l.

    Bound: lives for one decision.
    """

    network: NetworkLinks
    unsent: _UnsentBytes
    """Bytes that each job has still to send."""
    threshold: float
    staying: Mapping[int, Placement]
    _users: dict[int, list[int]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for row, placement in self.staying.items():
            if len(placement.nodes) > 1:
                self.add(row, placement)

    def add(self, row: int, placement: Placement) -> None:
        """Let that job use the links between its nodes."""
        for link in self.network.links(placement.nodes):
            self._users.setdefault(link, []).append(row)

    def refuses(self, row: int, placement: Placement) -> str:
        """Return why the job should not start there; "" if it may."""
        others = [users for link in self.network.links(placement.nodes) if (users := self._users.get(link))]
        if any(len(users) >= _MOST_ON_A_LINK for users in others):
            return "deferred: it would be the third job on a link"
        if any(not self.unsent[row] < self.threshold * self.unsent[users[0]] for users in others):
            return "deferred: it would share a link with a job that has not much more to send"
        return ""
