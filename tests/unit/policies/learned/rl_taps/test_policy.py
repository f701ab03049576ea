"""The agent in service on a cluster: what it sees there is what its environment shows, and its decisions are valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.errors import EncoderError
from policies.learned.rl_taps.cluster_image import image_of, left_of, owners_of, slots_of
from policies.learned.rl_taps.image_columns import PAPER
from policies.learned.rl_taps.policy import IMITATING, SOURCE, RlTaps, source_of
from policies.learned.rl_taps.system import trained_network
from policies.model import ClusterState, Placement
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.policies.states.valid import check_resizing


def state_of(*jobs: Job) -> ClusterState:
    return cluster([Node(4)] * 8, list(jobs))


def random_state(seed: int) -> ClusterState:
    """A cluster of 32 GPUs with up to 16 jobs, elastic and of fixed size, most of which run while there are free GPUs."""
    rng = np.random.default_rng(seed)
    free = np.full(8, 4)
    jobs = []
    for _ in range(rng.integers(1, 17)):
        asked = int(rng.integers(1, 13))
        occupied: dict[int, int] | None = None
        if rng.random() < 0.7 and free.sum():
            gpus = rng.permutation(np.repeat(np.arange(8), free))[: rng.integers(1, asked + 1)]
            nodes, counts = np.unique(gpus, return_counts=True)
            free[nodes] -= counts
            occupied = dict(zip(nodes.tolist(), counts.tolist(), strict=True))
        jobs.append(
            Job(
                gpus=asked,
                sizes=(1, int(rng.integers(asked, 33))) if rng.random() < 0.8 else None,
                occupied=occupied,
                estimate_s=float(rng.choice([np.nan, 40.0, 120.0, 400.0, 900.0])),
                service_s=float(rng.choice([0.0, 30.0, 200.0])),
                preemptible=bool(rng.random() < 0.9),
                measured=(float(rng.uniform(1, 3)), 1.0, 4.0) if rng.random() < 0.3 else None,
            )
        )
    return state_of(*jobs)


def acting(action: np.ndarray, gpus: str = "any") -> RlTaps:
    """Return the policy with an agent that always does this."""
    found = RlTaps(round_s=10.0, gpus=gpus)
    logits = torch.nn.functional.one_hot(torch.from_numpy(action), 11).float()[None]
    found._network.logits = lambda _images: logits  # type: ignore[method-assign]
    return found


def of(**gpus: list[int]) -> np.ndarray:
    """Return the action that gives these GPUs to slots (s1=[0, 1])."""
    action = np.zeros(32, dtype=np.int64)
    for slot, mine in gpus.items():
        action[mine] = int(slot[1:])
    return action


def test_its_decisions_depend_on_the_state_alone() -> None:
    """With the network that comes with Headway, whatever it was asked before. A guard remembers how its jobs have fared."""
    policy = RlTaps(guard=False)
    asked = [random_state(seed) for seed in range(60)]
    asked += [replace(state, jobs=state.jobs.stopped(int(state.running[0]))) for state in asked if len(state.running)]
    decisions = []
    for state in asked:
        decisions.append(policy.decide(state))
        assert policy.decide(state) == decisions[-1]
    for state, decision in zip(reversed(asked), reversed(decisions), strict=True):
        assert policy.decide(state) == decision
    assert RlTaps(guard=False).decide(asked[0]) == decisions[0]


def test_the_image_shows_gpus_slots_and_backlog() -> None:
    jobs = [
        Job(gpus=2, occupied={1: 2}, estimate_s=50.0, service_s=20.0),
        *(Job(gpus=20, estimate_s=990.0) for _ in range(12)),
    ]
    state = state_of(*jobs)
    rows = slots_of(state, 10)
    assert rows == [1, 2, 3, 4, 0, 5, 6, 7, 8, 9]
    image = image_of(state, PAPER, rows, 10.0)
    # Of the second node's four GPUs the one with the number of the slot, and the last one.
    assert image[:, [4, 7]].tolist() == [[5, 5]] * 3 + [[0, 0]] * 7
    assert image[:, :32].sum() == 30
    # Ten rows of twelve, the most that a slot shows; then three rows of two GPUs.
    assert image[:, 32:44].all()
    assert image[:, 80:92].sum() == 6
    assert image[:, PAPER.first_of_backlog :].sum() == 3


@pytest.mark.parametrize("seed", range(30))
def test_a_job_in_a_slot_has_as_many_gpus_of_a_node_in_the_image_as_it_occupies(seed: int) -> None:
    state = random_state(seed)
    rows = slots_of(state, 10)
    owner = owners_of(state, rows)
    for slot, row in enumerate(rows):
        placement = None if row < 0 else state.jobs.placement(row)
        nodes, counts = np.unique(np.flatnonzero(owner == slot) // 4, return_counts=True)
        expected = () if placement is None else placement.items()
        assert list(zip(nodes.tolist(), counts.tolist(), strict=True)) == list(expected)


@pytest.mark.parametrize("seed", range(30))
def test_jobs_in_slots_are_the_first_by_submission_and_running_ones_before_waiting_ones(seed: int) -> None:
    state = random_state(seed)
    chosen = sorted(row for row in slots_of(state, 10) if row >= 0)
    first = [*state.running.tolist(), *state.pending.tolist()][:10]
    assert chosen == sorted(first)


def test_jobs_that_stay_on_their_nodes_keep_the_gpus_of_their_slots_when_others_end() -> None:
    jobs = [Job(gpus=1, occupied={row // 4: 1}) for row in range(10)]
    assert slots_of(state_of(*jobs), 10) == list(range(10))
    # The jobs of slots 1 and 5 have ended: the others keep their node's GPUs, and two waiting jobs get the free slots.
    left = [job for row, job in enumerate(jobs) if row not in {1, 5}]
    state = state_of(*left, Job(gpus=3), Job(gpus=3))
    rows = slots_of(state, 10)
    assert (rows[3], rows[7]) == (8, 9)
    assert owners_of(state, rows).tolist() == [0, 1, 2, -1, 4, 5, 6, -1, 8, 9, *[-1] * 22]


def on_gpus(state: ClusterState, *masks: int) -> ClusterState:
    """Return the state with these GPUs of the running jobs, node by node; 0: not known."""
    return replace(state, jobs=replace(state.jobs, placement_gpu_mask=np.array(masks, dtype=np.uint64)))


def test_the_image_shows_the_gpus_that_jobs_have_and_their_slots_are_of_these() -> None:
    jobs = [
        Job(gpus=2, occupied={0: 2}),
        Job(gpus=1, occupied={0: 1}),
        Job(gpus=3, occupied={1: 1, 7: 2}),
        Job(gpus=1, occupied={1: 1}),
        Job(gpus=1),
    ]
    state = on_gpus(state_of(*jobs), 0b1001, 0b10, 0b100, 0b1010, 0)
    # job 1 has GPU 1, job 0 the GPUs 0 and 3, and job 2 those with the numbers 6, 29 and 31; job 3 is anywhere else on node 1
    rows = slots_of(state, 10)
    assert rows == [0, 1, 4, -1, 3, -1, 2, -1, -1, -1]
    owner = owners_of(state, rows)
    assert {gpu: slot for gpu, slot in enumerate(owner.tolist()) if slot >= 0} == {
        0: 0,
        1: 1,
        3: 0,
        4: 4,
        6: 6,
        29: 6,
        31: 6,
    }


@pytest.mark.parametrize("seed", range(30))
def test_gpus_that_are_named_are_free_and_those_of_the_agent_where_these_are(seed: int) -> None:
    """Running jobs name none: those that stay keep theirs."""
    rng = np.random.default_rng(seed)
    state = random_state(seed)
    jobs, left = state.jobs, [rng.permutation(4).tolist() for _ in range(8)]
    pairs = zip(jobs.placement_node.tolist(), jobs.placement_gpus.tolist(), strict=True)
    state = on_gpus(state, *(sum(1 << left[node].pop() for _ in range(count)) for node, count in pairs))
    action = rng.integers(0, 11, 32)
    policy, counting = acting(action, gpus="named"), acting(action)
    check_resizing(counting, state, settled=lambda _row: True)
    decision, counted = policy.decide(state), counting.decide(state)
    assert {row: replace(each, gpu_masks=()) for row, each in decision.allocation.items()} == counted.allocation
    taken = [0] * 8
    for row, placement in decision.allocation.items():
        stays = placement == state.jobs.placement(row)
        assert len(placement.gpu_masks) == (0 if stays else len(placement.nodes))
        begin = state.jobs.placement_offset[row]
        masks = placement.gpu_masks or state.jobs.placement_gpu_mask[begin:].tolist()
        for (node, count), mask in zip(placement.items(), masks, strict=False):
            assert mask.bit_count() == count and not mask & taken[node] and mask < 16
            taken[node] |= mask
    rows, bits = slots_of(state, 10), np.arange(4)
    for row, placement in decision.allocation.items():
        given = np.flatnonzero(action == rows.index(row) + 1).tolist() if row in rows else []
        named = zip(placement.nodes, placement.gpu_masks, strict=False)
        has = {gpu for node, mask in named for gpu in (4 * node + bits[mask >> bits & 1 > 0]).tolist()}
        remark = "not all of its GPUs are those that the agent chose" in decision.reasons.get(row, "")
        assert remark == (not has <= set(given))


def test_an_agents_gpus_are_named_only_with_the_option() -> None:
    state = state_of(Job(gpus=1), Job(gpus=4, sizes=(1, 8)))
    action = of(s1=[2], s2=[5, 7, 12])
    assert not acting(action).spec.exact_gpus and acting(action, gpus="named").spec.exact_gpus
    assert acting(action).decide(state).allocation[0].gpu_masks == ()
    decision = acting(action, gpus="named").decide(state)
    assert decision.allocation[0] == Placement((0,), (1,), gpu_masks=(0b100,))
    assert decision.allocation[1] == Placement((1, 3), (2, 1), gpu_masks=(0b1010, 0b1))
    unknown = state_of(Job(gpus=1), Job(gpus=2, occupied={0: 2}, preemptible=False))
    found = acting(of(s2=[2]), gpus="named").decide(unknown)
    assert found.allocation[0].gpu_masks == () and "it is not known which are free" in found.reasons[0]
    with pytest.raises(ValueError, match="gpus is 'packed'; give any or named"):
        RlTaps(gpus="packed")


def test_unknown_durations_fill_all_rows() -> None:
    assert np.isinf(left_of(state_of(Job(estimate_s=float("nan")))))[0]


def test_elastic_jobs_get_what_the_agent_gives_on_its_nodes() -> None:
    state = state_of(Job(gpus=4, sizes=(1, 8)), Job(gpus=2, sizes=(1, 3)), Job(gpus=6))
    policy = acting(of(s1=[4, 5, 8, 9, 10], s2=[12, 13, 14, 15], s3=[31]))
    check_resizing(policy, state, settled=lambda _row: True)
    decision = policy.decide(state)
    assert dict(decision.allocation[0].items()) == {1: 2, 2: 3}
    assert decision.allocation[1].num_gpus == 3
    assert decision.allocation[2].num_gpus == 6


def test_an_agent_that_gives_nothing_leaves_no_cluster_idle() -> None:
    decision = acting(of()).decide(state_of(Job(gpus=40), Job(gpus=3)))
    assert {row: each.num_gpus for row, each in decision.allocation.items()} == {1: 3}


def test_running_jobs_without_a_slot_keep_what_they_have() -> None:
    jobs = [Job(gpus=1, occupied={row // 4: 1}, preemptible=True) for row in range(12)]
    state = state_of(*jobs)
    decision = acting(of(s1=[31])).decide(state)
    assert {0, 10, 11} <= set(decision.allocation)


def test_another_cluster_is_refused() -> None:
    with pytest.raises(EncoderError, match="32"):
        RlTaps().decide(cluster([Node(4)] * 4, [Job()]))


def test_the_paper_is_the_source_only_of_weights_from_reinforcement_learning() -> None:
    _, _, card = trained_network("")
    assert RlTaps().spec.source == source_of(card) == IMITATING
    assert source_of(replace(card, recipe={**card.recipe, "rounds": 28})) == SOURCE
