"""MARL on a cluster: schedulers, each with a part of the nodes, place the workers of waiting jobs or forward them.

Source: MARL (Zhao and Wu, TNSM 2021), sections III and IV. A scheduler has a rack, a partition, or a share of the nodes. It gives
each worker of a job to a GPU group, here a node or a socket, by one inference, or forwards it where it has no room; of a job whose
nodes have equal shares, a share by one inference. With sockets as groups, the decision names GPUs of the chosen ones. A job starts
when all its workers are placed, and runs to its end. Jobs train by all-reduce unless the state says that they have parameter
servers; `policies.learned.marl.serving.job_columns` says how they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from policies.api import Decision, PolicySpec
from policies.errors import WeightsError
from policies.learned.guard import LEAST_S, Guard, guard_of
from policies.learned.marl.graphs import FEATURES, Graph, Layout
from policies.learned.marl.network import MarlNetwork
from policies.learned.marl.recipe import SCORES, Recipe
from policies.learned.marl.serving.batch import Batch, Gang
from policies.learned.marl.serving.cluster_graphs import ClusterGraphs, graphs_of
from policies.learned.marl.serving.job_columns import job_columns
from policies.learned.marl.serving.networks import Networks
from policies.learned.marl.serving.schedulers import PARTITIONS, RACKS, SOCKETS, Schedulers, schedulers_of
from policies.learned.marl.spread_guard import consolidated
from policies.learned.marl.system import ENCODER, NAME, recipe_of
from policies.learned.shadow.guard import shadow_guard_of
from policies.learned.shadow.guarded import Guarded
from policies.learned.weights import weights as files
from policies.learned.weights.card import ModelCard
from policies.learned.weights.trained_range import noted
from policies.model import ClusterState, IntColumn
from policies.options import number, switch, whole
from policies.ordering.naming_gpus import with_agents_gpus
from policies.placement.placement_text import nodes_text
from policies.placement.wished_gpus import Wish, Wishes
from policies.selection import present_placements

SOURCE = "Large-scale Machine Learning Cluster Scheduling via Multi-agent Graph Reinforcement Learning (Zhao and Wu, TNSM 2021)"
_ROUND_S = 60.0
"""Longest time from the begin of an interval to its decision, seconds."""
_ROUNDED_S = 0.001
"""Submissions so shortly after the begin of an interval count as at it, as in the environment."""
_PUT_OFF = "no scheduler has room for all its workers"
_LATER = "it comes to its scheduler at the begin of the next interval"


class Marl(Guarded):
    """Places waiting jobs by trained schedulers, worker by worker, on nodes of their racks or partitions."""

    def __init__(
        self,
        weights: str = "",
        schedulers: str | int = RACKS,
        interval_s: float = 0.0,
        groups: int | str = 1,
        guard: bool = True,
    ) -> None:
        """`weights` is the folder of a policy training (`network=scores`, `shared=true`); without one, the weights that come with
        Headway.

        `schedulers`: racks, partitions, or a number, which divides the nodes evenly. Jobs are placed at the begin of intervals of
        `interval_s` seconds (the paper: 1800); 0: at every decision. Every node has `groups` GPU groups. With `groups=sockets` they
        are its sockets, where the layout of its GPUs is known, and GPUs of the chosen groups are named, which is advice only where
        Slurm cannot be told which GPUs a job gets. With `guard=false` the agents decide alone; else rules start overdue jobs, and,
        outside of the range of the training, keep jobs on few nodes.
        Raises WeightsError, ValueError.
        """
        self._state, self._recipe, self._card = _loaded(str(weights))
        self._division = _division(schedulers)
        self._interval_s = number("interval_s", interval_s, unit="seconds")
        self._groups = _grouping(groups)
        # A job waits for its interval by design.
        limits = Guard(least_s=max(LEAST_S, self._interval_s), looks_ahead=not self._interval_s)
        asked = guard_of(switch("guard", guard), alone=False)
        self._guard = shadow_guard_of(limits if asked is not None else None, self._interval_s)
        self._known: tuple[object, ClusterGraphs, Networks] | None = None
        self.spec = PolicySpec(
            name=NAME, source=SOURCE, exact_gpus=self._groups == SOCKETS, round_s=min(self._interval_s, _ROUND_S)
        )

    def decide(self, state: ClusterState) -> Decision:
        """Keep running jobs; place the waiting jobs of this interval, whole or not at all."""
        decided, wishes = self._decided(state)
        decision = self._checked(state, noted(self._card.trained_range, state, decided))
        return with_agents_gpus(state, decision, wishes, laid_out=True) if self.spec.exact_gpus else decision

    def _checked(self, state: ClusterState, decision: Decision) -> Decision:
        if self._guard is None:
            return decision
        if decision.outside or not self._card.trained_range:
            runs = {*state.running.tolist()}
            decision = consolidated(state, decision, [row for row in decision.allocation if row not in runs])
        return self._guarded(state, decision, self._card.trained_range)

    def _decided(self, state: ClusterState) -> tuple[Decision, Wishes]:
        """Return the agents' decision, and the GPU groups that they chose for the jobs that start."""
        allocation = present_placements(state, state.running)
        wishes: dict[int, dict[int, Wish]] = {}
        due, reasons = self._due(state), {}
        if len(due) < len(state.pending):
            reasons = dict.fromkeys(sorted({*state.pending.tolist()} - {*due.tolist()}), _LATER)
        parts = schedulers_of(state, self._division, self._groups)
        if len(due) and parts.count:
            batch = self._batch(state, parts)
            batch.place(due.tolist())
            for row, gang in batch.started.items():
                allocation[row] = placement = batch.placement(row)
                wishes[row] = batch.wish(row)
                reasons[row] = f"{placement.num_gpus} GPUs on {nodes_text(state, placement)}: {_by(gang, parts)}"
            reasons |= dict.fromkeys(sorted(batch.put_off), _PUT_OFF)
        return Decision(allocation, reasons, tuple(state.pending.tolist())), wishes

    def _due(self, state: ClusterState) -> IntColumn:
        """Return the waiting jobs that came before the present interval, in order of submission."""
        waiting = state.pending
        if not self._interval_s:
            return waiting
        arrival = np.ceil((state.jobs.submit_time_s[waiting] - _ROUNDED_S) / self._interval_s)
        return waiting[arrival <= math.floor(state.time_s / self._interval_s)]

    def _batch(self, state: ClusterState, parts: Schedulers) -> Batch:
        graphs, networks = self._networks(state, parts)
        return Batch(state, parts, graphs, job_columns(state, graphs.layouts[0]), networks, self._recipe.encoded)

    def _networks(self, state: ClusterState, parts: Schedulers) -> tuple[ClusterGraphs, Networks]:
        """Return graphs and networks of the cluster, those of the last decision where nodes and schedulers are the same."""
        nodes = state.nodes
        speeds = (nodes.nic_gbyte_s, nodes.uplink_gbyte_s, nodes.pcie_gbyte_s)
        columns = (nodes.gpus, nodes.rack, parts.of_node, parts.group_node, *speeds)
        key = tuple(None if column is None else column.tobytes() for column in columns)
        if self._known is None or self._known[0] != key:
            graphs = graphs_of(state, parts)
            self._known = key, graphs, Networks(graphs.layouts, self._recipe, self._state)
        return self._known[1:]


def _by(gang: Gang, parts: Schedulers) -> str:
    """Return the schedulers that placed a job."""
    chosen = sorted(set(gang.schedulers))
    if len(chosen) == 1:
        return f"scheduler {chosen[0]} of {parts.count}"
    return f"{len(chosen)} of {parts.count} schedulers, which forwarded workers"


def _division(option: object) -> str | int:
    if option in (RACKS, PARTITIONS):
        return str(option)
    if isinstance(option, str):
        message = f"schedulers is {option!r}; give {RACKS}, {PARTITIONS}, or a number of schedulers"
        raise ValueError(message)  # noqa: TRY004 - one kind of error for every bad option
    return whole("schedulers", option, least=1, most=10_000)


def _grouping(option: object) -> str | int:
    if option == SOCKETS:
        return SOCKETS
    if isinstance(option, str):
        message = f"groups is {option!r}; give {SOCKETS}, or a number of groups of each node"
        raise ValueError(message)  # noqa: TRY004 - one kind of error for every bad option
    return whole("groups", option, least=1, most=64)


def _loaded(option: str) -> tuple[Mapping[str, torch.Tensor], Recipe, ModelCard]:
    """Return weights, recipe and card. Raises WeightsError."""
    place, name = files.located(option, NAME, NAME)
    _, card = files.load(place, name, system=NAME, encoder=ENCODER)
    recipe = recipe_of(card)
    if recipe.network != SCORES or not recipe.shared:
        raise WeightsError(
            f"{place}: these weights are for the data center of their training; train with network={SCORES} and shared=true"
        )
    graph = Graph(2, np.array([[0, 1]]), np.zeros((1, FEATURES - 1), dtype=np.float32))
    network = MarlNetwork(Layout(1, 1, 0, graph, graph, by_type=True), recipe)
    arrays, _ = files.load(place, name, system=NAME, encoder=ENCODER, network=network.state_dict())
    return {each: torch.as_tensor(np.asarray(array)) for each, array in arrays.items()}, recipe, card
