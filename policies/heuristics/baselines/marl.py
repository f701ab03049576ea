"""The baselines of MARL: Tetris' bin packing, load balancing, and least interference first. They differ in placement only.

Source: Zhao and Wu, "Large-scale Machine Learning Cluster Scheduling via Multi-agent Graph Reinforcement Learning", TNSM 2021,
section VI. Jobs come in order of arrival and run to their end without being stopped.

Points that the paper leaves open, or that differ here:
- a job that does not fit is forwarded to another scheduler; here it waits, and jobs behind it may start;
- parameter servers are placed like workers; here jobs have only workers, each of one GPU with its CPUs and memory;
- bin packing: the most loaded node that takes the whole job, else all of the node that takes most of it, and so on;
- load: shares of GPUs, CPUs and memory in use, added up; the lowest index decides ties;
- interference on a node: the sum of the slowdowns of all its workers, that of the worker to be placed included. These
  rules choose nodes and not sockets: all workers on a node count as being on the same one.
"""

from __future__ import annotations

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.options import number
from policies.placement.best_fit import Capacity
from policies.placement.dividing import Shares
from policies.placement.paper_rules import bin_packing, least_load, loosely, worker_by_worker
from policies.placement.rules import PlacementRule
from policies.selection import fill
from policies.speeds.host_interference import HostInterference, Residents

_SOURCE = "MARL (Zhao and Wu, TNSM 2021), section VI, baseline {}"


class MarlTetris:
    """Starts jobs in order of submission if they fit; places them on the fullest nodes that have room."""

    spec = PolicySpec(name="marl-tetris", source=_SOURCE.format("Tetris"))

    def decide(self, state: ClusterState) -> Decision:
        """Start every waiting job that fits when its turn comes."""
        return fill(state, state.pending, placing=bin_packing(state))


class MarlLb:
    """Starts jobs in order of submission if they fit; places each worker on the node with the least load."""

    spec = PolicySpec(name="marl-lb", source=_SOURCE.format("LB"))

    def decide(self, state: ClusterState) -> Decision:
        """Start every waiting job that fits when its turn comes."""
        return fill(state, state.pending, placing=least_load(state))


class MarlLif:
    """Starts jobs in order of submission if they fit; places each worker on the node with the least interference."""

    spec = PolicySpec(name="marl-lif", source=_SOURCE.format("LIF"), needs=frozenset({"profile"}))

    def __init__(
        self,
        alpha1: float = 0.0532,
        alpha2: float = 0.25,
        alpha3: float = 0.0,
        beta1: float = 0.252,
        beta2: float = 0.0,
    ) -> None:
        """The coefficients of `policies.speeds.host_interference.HostInterference`."""
        self._model = HostInterference(
            number("alpha1", alpha1, unit="slowdown"),
            number("alpha2", alpha2, unit="1/cores"),
            number("alpha3", alpha3, unit="1/cores"),
            number("beta1", beta1, unit="slowdown per GB/s"),
            number("beta2", beta2, unit="slowdown per GB/s"),
        )

    def decide(self, state: ClusterState) -> Decision:
        """Start every waiting job that fits when its turn comes."""
        residents = Residents(state, self._model)

        def rule(capacity: Capacity, row: int, gpus: int) -> Shares | None:
            return worker_by_worker(capacity, row, gpus, lambda node, workers: residents.score(node, row, workers))

        return fill(state, state.pending, placing=PlacementRule("least interference", loosely(rule), residents.add))
