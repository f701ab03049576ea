"""RL-TAPS on a cluster: the trained agent gives GPUs to the jobs of ten slots, round by round.

The form is that of RL-TAPS (Ryu et al., CASCON 2020), section 4; the weights that come with Headway are trained by imitation of
Headway's rule `taps-blocks` alone, which is not in the paper. The agent gives every GPU to a slot, and the job gets as many GPUs
as the agent gave it, within its limits, on the nodes of these GPUs where it may run so, else by best fit. A job of fixed size gets
that size if the agent gives it any GPU. With `gpus=named` a job that starts or changes its size also gets those GPUs, as far as
they are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from policies.api import Decision, PolicySpec
from policies.errors import EncoderError
from policies.learned.resizing_guard import resizing_guard_of
from policies.learned.rl_taps.cluster_image import Ints, image_of, node_of_gpus, slots_of
from policies.learned.rl_taps.system import trained_network
from policies.learned.shadow.guard import shadow_guard_of
from policies.learned.shadow.guarded import Guarded
from policies.learned.weights.card import ModelCard
from policies.model import ClusterState, Placement, Split
from policies.options import choice, number
from policies.ordering.naming_gpus import with_agents_gpus
from policies.ordering.resizing import Resizer, ranges
from policies.placement.best_fit import Capacity
from policies.placement.rules import PlacementRule
from policies.placement.wished_gpus import Wish, Wishes

SOURCE = "Towards Topology Aware Pre-Emptive Job Scheduling with Deep Reinforcement Learning (Ryu et al., CASCON 2020)"
IMITATING = "the form of RL-TAPS (Ryu et al., CASCON 2020), trained by imitation of Headway's rule `taps-blocks` alone"
_REASON = "the agent gave it so many GPUs"
_STEP_S = 48.3
NAMED = "named"
GPUS = ("any", NAMED)
"""Values of the option: Slurm chooses, or the policy names the GPUs that the agent chose."""


class RlTaps(Guarded):
    """Gives GPUs to the jobs of ten slots by a trained network; the cluster must have as many GPUs as that of its training."""

    def __init__(
        self, weights: str = "", round_s: float = _STEP_S, row_s: float = 0.0, guard: bool = True, gpus: str = GPUS[0]
    ) -> None:
        """`weights` is the folder of a policy training; without one, the weights that come with Headway.

        `round_s` is the longest time between two decisions (the paper: 48.3 s), for which a job also keeps its size. A row of the
        image shows `row_s` seconds (0: `round_s`); ten rows should hold most jobs. With `guard=false` the agent
        decides alone, also outside of the range of its training. `gpus`: any, or named, which is advice only where Slurm cannot be
        told which GPUs of its nodes a job gets. Raises WeightsError, ValueError.
        """
        self._network, self._columns, card = trained_network(str(weights))
        self._trained = card.trained_range
        self._round_s = number("round_s", round_s, unit="seconds")
        self._row_s = number("row_s", row_s, unit="seconds") or self._round_s
        # Inside its range jobs wait because the agent has ten slots, and often for longer than they run: as in its training.
        self._guard = shadow_guard_of(resizing_guard_of(guard, self._round_s, inside=False))
        self._names_gpus = choice("gpus", gpus, GPUS) == NAMED
        self.spec = PolicySpec(
            name="rl-taps",
            source=source_of(card),
            preempts=True,
            resizes=True,
            exact_gpus=self._names_gpus,
            round_s=self._round_s,
        )

    def decide(self, state: ClusterState) -> Decision:
        """Let the agent act, then carry its action out as far as jobs and nodes allow. Raises EncoderError."""
        gpus = int(state.nodes.gpus.sum())
        if gpus != self._columns.gpus:
            raise EncoderError(
                f"the cluster has {gpus} GPUs, and these weights are for {self._columns.gpus}; "
                "train rl-taps with --cluster, or choose another policy"
            )
        rows = slots_of(state, self._columns.slots)
        image = image_of(state, self._columns, rows, self._row_s)
        with torch.inference_mode():
            action = self._network.logits(torch.from_numpy(image[None]))[0].argmax(1).numpy()
        wanted = {**_without_slot(state, rows), **_wanted(state, rows, action)}
        low, high = (column.tolist() for column in ranges(state))

        def shares(order: Sequence[int], free: int) -> dict[int, int]:
            return _sizes(state, order, free, {row: each.num_gpus for row, each in wanted.items()}, low, high)

        rule = PlacementRule("the agent's nodes", lambda capacity, row: _placed(capacity, row, wanted))
        decision = Resizer(rule, self._round_s, _REASON).decide(state, shares)
        decision = self._guarded(state, decision, self._trained)
        return (
            with_agents_gpus(state, decision, _wishes(state, rows, action), laid_out=False)
            if self._names_gpus
            else decision
        )


def source_of(card: ModelCard) -> str:
    """Return the source of a policy with these weights: the paper only if they were trained by reinforcement learning."""
    return SOURCE if card.recipe.get("rounds") else IMITATING


def _wanted(state: ClusterState, rows: Sequence[int], action: Ints) -> dict[int, Placement]:
    """Return what the agent gives to each job that gets any, by row of the state."""
    node = node_of_gpus(state)
    found = {}
    for slot, row in enumerate(rows):
        mine = node[action == slot + 1]
        if row >= 0 and len(mine):
            nodes, counts = np.unique(mine, return_counts=True)
            found[row] = Placement(tuple(nodes.tolist()), tuple(counts.tolist()))
    return found


def _wishes(state: ClusterState, rows: Sequence[int], action: Ints) -> Wishes:
    """Return the GPUs that the agent gives to each job that gets any, by row of the state and by node."""
    node = node_of_gpus(state)
    bits = np.arange(len(node)) - np.repeat(np.cumsum(state.nodes.gpus) - state.nodes.gpus, state.nodes.gpus)
    found: dict[int, dict[int, Wish]] = {}
    for slot, row in enumerate(rows):
        masks: dict[int, int] = {}
        for where, bit in zip(node[action == slot + 1].tolist(), bits[action == slot + 1].tolist(), strict=True):
            masks[where] = masks.get(where, 0) | 1 << bit
        if row >= 0 and masks:
            found[row] = {where: [(mask, mask.bit_count())] for where, mask in masks.items()}
    return found


def _without_slot(state: ClusterState, rows: Sequence[int]) -> dict[int, Placement]:
    """Return what running jobs without a slot have, which they keep: more than the slots may run when the policy begins."""
    return {row: each for row in state.running.tolist() if row not in rows and (each := state.jobs.placement(row))}


def _sizes(
    state: ClusterState,
    order: Sequence[int],
    free: int,
    given: Mapping[int, int],
    low: Sequence[int],
    high: Sequence[int],
) -> dict[int, int]:
    """Return the GPUs of each of these jobs: what the agent gives, within the job's limits, while there are so many.

    If the agent gives nothing, the first job that fits gets its minimum: the next state would look the same.
    """
    runs = set(state.running.tolist())
    found: dict[int, int] = {}
    for row in order:
        size = given.get(row, 0)
        size = min(max(size, low[row]), high[row]) if size else 0
        if size and low[row] <= free:
            found[row] = min(size, free)
            free -= found[row]
    if not found and not runs:
        first = next((row for row in order if low[row] <= free), None)
        return {} if first is None else {first: low[first]}
    return found


def _placed(capacity: Capacity, row: int, wanted: Mapping[int, Placement]) -> Placement | None:
    """Return the agent's placement where the job may have it, else the best fit."""
    request, placement = capacity.requests.of(row), wanted.get(row)
    may = (
        placement is not None
        and placement.num_gpus == request.gpus
        and request.min_nodes <= len(placement.nodes) <= request.max_nodes
        and (request.split == Split.ANY or (request.split == Split.EVEN and len(set(placement.gpus)) == 1))
        and all(request.nodes >> node & 1 for node in placement.nodes)
        and capacity.can_place_again(row, placement)
    )
    return placement if may else capacity.place(row)
