"""A decision that names GPUs is checked as a whole: they exist, are free, and are as many as the job gets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.cycle.decision.plan import Plan, Rejection, make_plan
from policies.api import Decision, PolicySpec
from policies.model import ClusterState, Placement
from tests.unit.policies.states.cluster import Job, Node, cluster

NAMES = PolicySpec(name="names", source="tests", exact_gpus=True)
PREEMPTS = replace(NAMES, preempts=True)


def state_of() -> ClusterState:
    """On n0 a foreign job has GPU 7, and a job that runs has GPUs 0 and 1; two jobs of 2 GPUs wait."""
    seen = cluster([Node(foreign_gpus=1), Node()], [Job(gpus=2, occupied={0: 2}), Job(gpus=2), Job(gpus=2)])
    foreign = np.array([128, 0], dtype=np.uint64)
    jobs = replace(seen.jobs, placement_gpu_mask=np.array([0b11], dtype=np.uint64))
    return replace(seen, nodes=replace(seen.nodes, foreign_gpu_mask=foreign), jobs=jobs)


def on(mask: int, node: int = 0, gpus: int = 2) -> Placement:
    return Placement((node,), (gpus,), gpu_masks=(mask,))


STAYS = Placement((0,), (2,))


def test_named_gpus_are_in_the_plan() -> None:
    plan = make_plan(state_of(), Decision({0: STAYS, 1: on(0b1100), 2: on(0b11, node=1)}), NAMES)
    assert isinstance(plan, Plan)
    assert [start.placement.gpu_masks for start in plan.starts] == [(0b1100,), (0b11,)]


@pytest.mark.parametrize(
    ("allocation", "complaint"),
    [
        ({0: STAYS, 1: on(0b110)}, "job 101: node n0: GPU 1 is named, and another job has it; name free ones"),
        ({0: STAYS, 1: on(0b1010_0000)}, "job 101: node n0: GPU 7 is named, and another job has it"),
        ({0: STAYS, 1: on(0b1100), 2: on(0b11000)}, "job 102: node n0: GPU 3 is named, and another job has it"),
        ({0: STAYS, 1: on(1 << 8 | 1)}, "job 101: node n0: GPU 8 does not exist there; name some of 0 to 7"),
        ({0: STAYS, 1: on(0b100)}, "job 101: node n0: 1 GPUs (2) are named for 2; name 2, or none"),
        ({0: STAYS, 1: replace(on(0b100), gpu_masks=(4, 8))}, "job 101: 2 sets of GPUs for 1 nodes"),
    ],
)
def test_a_wrong_choice_is_refused_with_the_reason(allocation: dict[int, Placement], complaint: str) -> None:
    refused = make_plan(state_of(), Decision(allocation), NAMES)
    assert isinstance(refused, Rejection)
    assert refused.reason.startswith(complaint)


def test_a_policy_that_only_counts_may_not_name_gpus() -> None:
    refused = make_plan(state_of(), Decision({0: STAYS, 1: on(0b1100)}), replace(NAMES, exact_gpus=False))
    assert isinstance(refused, Rejection)
    assert "describes itself as a policy that only counts them; set exact_gpus in its spec" in refused.reason


def test_a_running_job_stays_if_its_own_gpus_are_named_and_moves_if_others_are() -> None:
    stays = make_plan(state_of(), Decision({0: on(0b11), 1: on(0b1100)}), NAMES)
    assert isinstance(stays, Plan)
    refused = make_plan(state_of(), Decision({0: on(0b1100), 1: on(0b11)}), NAMES)
    assert isinstance(refused, Rejection)
    assert "job 100 runs and would be moved" in refused.reason
    moved = make_plan(state_of(), Decision({0: on(0b1100), 1: on(0b11)}), PREEMPTS)
    assert isinstance(moved, Plan)
    assert [stop.placement for stop in moved.stops] == [on(0b1100)]


def test_a_start_waits_while_a_job_that_stops_still_has_its_gpus() -> None:
    plan = make_plan(state_of(), Decision({1: on(0b11), 2: on(0b1100)}), PREEMPTS)
    assert isinstance(plan, Plan)
    assert [start.row for start in plan.starts] == [2], (
        "there are GPUs enough for both, but the first job wants those of job 100"
    )
    assert plan.queue == (1,)


def test_a_choice_that_slurm_cannot_be_told_delays_no_start() -> None:
    # given that the choice for the first job is only advice, as Slurm cannot be told: it gets two others that are free
    wanted = Decision({1: on(0b11), 2: on(0b1100)})
    plan = make_plan(state_of(), wanted, PREEMPTS, lambda row, _: row != 1)
    assert isinstance(plan, Plan)
    assert [start.row for start in plan.starts] == [1, 2]
    # but only if as many are free: here one is
    full = replace(state_of(), nodes=replace(state_of().nodes, foreign_gpus=np.array([5, 0])))
    waits = make_plan(full, Decision({1: on(0b11)}), PREEMPTS, lambda _row, _: False)
    assert isinstance(waits, Plan)
    assert waits.starts == ()
