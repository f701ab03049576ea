"""A decision becomes steps, or is refused whole."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cycle.decision.plan import Plan, Rejection, Start, Stop, make_plan
from controller.cycle.decision.stop_groups import StopGroup
from controller.observe.observer import Observer
from controller.profiles.windows import RunKey
from controller.state.ledger import Ledger
from policies.api import Decision, PolicySpec, load_policy
from policies.heuristics.orders.fifo_skip import FifoSkip
from policies.model import ClusterState, Placement
from tests.unit.controller.examples.build import job, node, request, running, snapshot
from tests.unit.policies.states.cluster import Job, Node, cluster, states

SPEC = PolicySpec(name="test", source="tests")


def state_of(*jobs, **changes):
    return Observer().observe(snapshot(*jobs, **changes), Ledger(), frozenset({"dl"})).state


def at(*pairs):
    return Placement.of(pairs)


def test_waiting_jobs_are_started_in_the_policys_order_and_the_rest_queue():
    # given three waiting jobs
    state = state_of(job("1"), job("2"), job("3"))
    # when a policy places two of them
    decision = Decision({0: at((0, 1)), 2: at((1, 1))}, {2: "room"}, queue=(2, 1, 0))
    # then they start in its order, with its reasons
    plan = make_plan(state, decision, SPEC)
    assert plan == Plan((Start(2, at((1, 1)), "room"), Start(0, at((0, 1)), "")), queue=(1,))


def test_running_jobs_keep_their_place():
    state = state_of(running("1", on={"n1": 8}), job("2"))
    kept = Decision({0: at((0, 8)), 1: at((1, 1))})
    assert isinstance(make_plan(state, kept, SPEC), Plan)
    for moved in (Decision({}), Decision({0: at((1, 8))}), Decision({0: at((0, 4))})):
        refused = make_plan(state, moved, SPEC)
        assert isinstance(refused, Rejection)
        assert "not preemptible" in refused.reason


@pytest.mark.parametrize(
    ("allocation", "complaint"),
    [
        ({7: at((0, 1))}, "row 7 is no job"),
        ({-1: at((0, 1))}, "row -1 is no job"),
        ({0: at((9, 1))}, "a row without a node"),
        ({0: Placement((), ())}, "without nodes"),
        ({0: Placement((0, 0), (1, 1))}, "named twice"),
        ({0: Placement((0,), (0,))}, "without GPUs"),
        ({0: at((0, 2))}, "2 GPUs instead of 1"),
        ({1: at((0, 4))}, "4 GPUs instead of 8"),
        ({1: at((0, 8))}, "1 nodes, but it runs on 2 to 2"),
        ({1: at((0, 5), (1, 3))}, "needs 4 GPUs on each node"),
        ({2: at((0, 5), (1, 7))}, "same number of GPUs"),
        ({0: at((3, 1))}, "n4 takes no jobs"),
        ({3: at((1, 1))}, "is not eligible for it"),
        ({2: at((0, 6), (1, 6)), 1: at((1, 4), (2, 4))}, "n2 has not enough GPUs"),
    ],
)
def test_a_bad_decision_is_refused_with_the_reason(allocation, complaint):
    nodes = (node("n1"), node("n2"), node("n3"), node("n4", available=False, state="IDLE+DRAIN"))
    state = state_of(
        job("1"),
        job("2", request=request(gpus_per_node=4, min_nodes=2, max_nodes=2)),
        job("3", request=request(gpus_per_job=12)),
        job("4", request=request(gpus_per_node=1, required_nodes=("n1",))),
        nodes=nodes,
    )
    refused = make_plan(state, Decision(allocation), SPEC)
    assert isinstance(refused, Rejection)
    assert complaint in refused.reason


def test_one_bad_job_spoils_the_whole_decision():
    state = state_of(job("1"), job("2"))
    assert isinstance(make_plan(state, Decision({0: at((0, 1)), 1: at((0, 8))}), SPEC), Rejection)


def test_a_node_shared_with_others_gives_only_what_is_left():
    state = state_of(running("1", on={"n1": 6}, batch=False), job("2", request=request(gpus_per_node=3)), nodes=1)
    assert isinstance(make_plan(state, Decision({0: at((0, 3))}), SPEC), Rejection)


def test_cpus_and_memory_limit_too():
    together = Decision({0: at((0, 1)), 1: at((0, 1))})
    greedy = [job(str(i), request=request(gpus_per_node=1, num_cpus=40)) for i in (1, 2)]
    assert "CPUs" in make_plan(state_of(*greedy), together, SPEC).reason
    large = [job(str(i), request=request(gpus_per_node=1, memory_mib_per_node=200_000)) for i in (1, 2)]
    assert "memory" in make_plan(state_of(*large), together, SPEC).reason


def test_an_exclusive_job_shares_its_node_with_no_other():
    state = state_of(running("1", on={"n1": 1}), job("2", exclusive=True))
    shared = Decision({0: at((0, 1)), 1: at((0, 1))})
    assert "exclusive" in make_plan(state, shared, SPEC).reason
    alone = Decision({0: at((0, 1)), 1: at((1, 1))})
    assert isinstance(make_plan(state, alone, SPEC), Plan)


def test_nothing_to_do_is_a_plan_too():
    assert make_plan(state_of(), Decision({}), SPEC) == Plan((), ())


def test_starts_come_in_the_policys_order_and_those_it_does_not_name_by_row():
    state = state_of(*[job(str(i)) for i in range(1, 6)])
    decision = Decision({row: at((0, 1)) for row in (4, 3, 0, 1)}, queue=(3, 2, 1))
    plan = make_plan(state, decision, SPEC)
    assert [start.row for start in plan.starts] == [3, 1, 0, 4]
    assert plan.queue == (2,)


PREEMPTS = PolicySpec(name="test", source="tests", preempts=True)


def preempted_state(*jobs, may=("1",), **changes):
    """The same, where the jobs of those ids are preemptible."""
    shown = snapshot(*[replace(job, raw_id=int(job.key.job_id)) for job in jobs], **changes)
    runs = frozenset(RunKey(int(job_id), 0) for job_id in may)
    return Observer().observe(shown, Ledger(), frozenset({"dl"}), preemptible=runs).state


def test_a_preemptible_job_may_be_stopped_and_jobs_that_need_its_gpus_wait():
    # given a job on the one node, and three that wait
    state = preempted_state(running("1", on={"n1": 6}), job("2"), job("3"), job("4"), nodes=1)
    wanted = Decision({1: at((0, 1)), 2: at((0, 1)), 3: at((0, 1))}, {0: "paused", 1: "best fit"}, queue=(1, 2, 3))
    # when the policy leaves it out
    plan = make_plan(state, wanted, PREEMPTS)
    # then it is stopped; a job that fits beside it starts, and the others are at the head of the queue
    assert plan.stops == (Stop(0, "paused", None),)
    assert [start.row for start in plan.starts] == [1, 2]
    assert plan.queue == (3,)
    assert plan.reasons[3] == "waits until job 1 is stopped"


def test_jobs_that_wait_for_stops_keep_their_position_in_the_policys_order():
    state = preempted_state(running("1", on={"n1": 8}), job("2"), job("3"), job("4"), job("5"), nodes=1)
    plan = make_plan(state, Decision({4: at((0, 1)), 2: at((0, 1))}, queue=(3, 2)), PREEMPTS)
    assert (plan.starts, plan.queue) == ((), (3, 2, 4))


def test_stops_for_the_same_job_are_a_group_and_those_for_the_first_in_line_come_first():
    # given a job on each node, one of them on two, and two that wait
    wide = running("3", on={"n3": 4, "n4": 4})
    state = preempted_state(
        running("1", on={"n1": 8}), running("2", on={"n2": 8}), wide,
        job("4"), job("5", request=request(gpus_per_node=5, min_nodes=3)), may=("1", "2", "3"), nodes=4,
    )  # fmt: skip
    # when the second is placed on three of them, and the first on one
    wanted = Decision({3: at((0, 1)), 4: at((1, 5), (2, 5), (3, 5))}, queue=(4, 3))
    plan = make_plan(state, wanted, PREEMPTS)
    # then the groups are those of the plan's line
    assert [stop.row for stop in plan.stops] == [0, 1, 2]
    assert plan.groups == (StopGroup((1, 2), 4), StopGroup((0,), 3))
    # and a job that fits beside those that stop needs none of them
    beside = make_plan(state, Decision({0: at((0, 8)), 1: at((1, 8)), 3: at((2, 1))}), PREEMPTS)
    assert ([start.row for start in beside.starts], beside.groups) == ([3], (StopGroup((2,), None),))


def test_a_job_that_is_moved_and_the_jobs_on_its_new_nodes_are_a_group():
    state = preempted_state(
        running("1", on={"n1": 8}), running("2", on={"n2": 8}), running("3", on={"n3": 8}), job("4"),
        may=("1", "2", "3"), nodes=4,
    )  # fmt: skip
    plan = make_plan(state, Decision({0: at((1, 8)), 1: at((0, 8)), 2: at((3, 8))}), PREEMPTS)
    assert plan.groups == (StopGroup((0, 1), None), StopGroup((2,), None))


def test_starts_beside_a_job_that_stops_count_cpus_memory_and_exclusive_jobs():
    large = {"request": request(gpus_per_node=1, num_cpus=40, memory_mib_per_node=200_000)}
    beside = preempted_state(running("1", on={"n1": 1}, **large), job("2", **large), job("3", exclusive=True), nodes=1)
    for row in (1, 2):
        plan = make_plan(beside, Decision({row: at((0, 1))}), PREEMPTS)
        assert (plan.starts, [stop.row for stop in plan.stops]) == ((), [0])
        assert row in plan.queue
    alone = preempted_state(running("1", on={"n1": 1}, exclusive=True), job("2"), nodes=1)
    assert make_plan(alone, Decision({1: at((0, 1))}), PREEMPTS).starts == ()


@pytest.mark.parametrize(
    ("node", "old", "need"),
    [
        (Node(memory_mib=1000), {"memory_mib_per_gpu": 300.0}, {"memory_mib_per_gpu": 1.0}),
        (Node(cpus=16), {"cpus_per_gpu": 5.0}, {"cpus_per_gpu": 1.0}),
        (Node(memory_mib=1000, foreign_memory_mib=1010), {}, {"memory_mib_per_gpu": 1.0}),
    ],
    ids=["memory", "CPUs", "memory of a foreign job"],
)
@pytest.mark.parametrize("stops", [False, True], ids=["none stops", "one stops elsewhere"])
def test_a_job_without_a_request_starts_beside_jobs_that_seem_to_use_more_than_the_node_has(node, old, need, stops):
    # given a running job whose average per GPU is more than the memory or the CPUs of its node
    both = [Job(4, occupied={0: 4}, **old), Job(8, occupied={1: 8})]
    keeps = {0: at((0, 4))} if stops else {0: at((0, 4)), 1: at((1, 8))}
    # when a job that needs none of them is placed there, then it starts
    without = cluster([node, Node()], [*both, Job(1)])
    plan = make_plan(without, Decision(keeps | {2: at((0, 1))}), PREEMPTS)
    assert ([start.row for start in plan.starts], len(plan.stops)) == ([2], int(stops))
    # and one that needs some does not, nor one that is moved there
    needs = cluster([node, Node()], [both[0], Job(8, occupied={1: 8}, **need), Job(1, **need)])
    refused = make_plan(needs, Decision(keeps | {2: at((0, 1))}), PREEMPTS)
    assert "n0 has not enough" in refused.reason
    moved = cluster([node, Node()], [both[0], Job(1, occupied={1: 1}, **need)])
    assert "n0 has not enough" in make_plan(moved, Decision({0: at((0, 4)), 1: at((0, 1))}), PREEMPTS).reason


@pytest.mark.parametrize("policy", ["backfill", "fifo-skip", "srtf"])
def test_policies_place_jobs_without_a_request_of_memory_beside_a_job_that_seems_to_use_more_than_there_is(policy):
    state = cluster([Node(memory_mib=1000)], [Job(4, occupied={0: 4}, memory_mib_per_gpu=300.0), Job(1), Job(1)])
    rule = load_policy(policy)
    assert [start.row for start in make_plan(state, rule.decide(state), rule.spec).starts] == [1, 2]


def test_a_preemptible_job_may_be_moved_where_it_may_go():
    nodes = (node("n1"), node("n2"), node("n3", available=False), node("n4", partitions=frozenset({"other", "dl"})))
    one = running("1", on={"n1": 2}, request=request(gpus_per_node=2, excluded_nodes=("n4",)))
    state = preempted_state(one, running("2", on={"n2": 7}), job("3"), nodes=nodes)
    moved = make_plan(state, Decision({0: at((1, 1)), 1: at((1, 7))}), PREEMPTS)
    assert "1 GPUs instead of 2" in moved.reason
    assert "not enough GPUs" in make_plan(state, Decision({0: at((1, 2)), 1: at((1, 7))}), PREEMPTS).reason
    assert "takes no jobs" in make_plan(state, Decision({0: at((2, 2)), 1: at((1, 7))}), PREEMPTS).reason
    assert "is not eligible for it" in make_plan(state, Decision({0: at((3, 2)), 1: at((1, 7))}), PREEMPTS).reason
    free = preempted_state(one, job("3"), nodes=nodes)
    assert make_plan(free, Decision({0: at((1, 2))}), PREEMPTS).stops == (Stop(0, "", at((1, 2))),)


def test_a_policy_that_declares_no_preemption_may_not_preempt():
    state = preempted_state(running("1", on={"n1": 8}), job("2"))
    refused = make_plan(state, Decision({}), SPEC)
    assert "test describes itself as a policy without preemption" in refused.reason


def test_one_job_that_is_not_preemptible_spoils_the_decision_though_another_is():
    state = preempted_state(running("1", on={"n1": 8}), running("2", on={"n2": 8}), job("3"))
    assert "job 2 runs and cannot be stopped" in make_plan(state, Decision({}), PREEMPTS).reason


@pytest.mark.parametrize("number", [1 << 40, 1 << 63, 1 << 70, -(1 << 70)])
def test_numbers_beyond_any_cluster_are_refused_too(number):
    state = state_of(job("1"))
    for decision in (
        Decision({number: at((0, 1))}),
        Decision({0: at((number, 1))}),
        Decision({0: at((0, number))}),
        Decision({}, queue=(number,)),
    ):
        assert isinstance(make_plan(state, decision, SPEC), Rejection)


@st.composite
def decisions(draw, state: ClusterState):
    """Decisions of a policy, some of them damaged."""
    allocation = dict(FifoSkip().decide(state).allocation)
    for _ in range(draw(st.integers(0, 2))):
        row = draw(st.integers(-1, len(state.jobs)))
        held = allocation.get(row, Placement((0,), (1,)))
        place = draw(st.integers(0, len(held.nodes) - 1)) if held.nodes else 0
        wrong = draw(st.integers(-1, len(state.nodes)))
        match draw(st.sampled_from(("gone", "gpus", "nodes", "short", "empty"))):
            case "gone":
                allocation.pop(row, None)
            case "gpus":
                allocation[row] = Placement(held.nodes, (*held.gpus[:place], wrong, *held.gpus[place + 1 :]))
            case "nodes":
                allocation[row] = Placement((*held.nodes[:place], wrong, *held.nodes[place + 1 :]), held.gpus)
            case "short":
                allocation[row] = Placement(held.nodes, held.gpus[1:])
            case "empty":
                allocation[row] = Placement((), ())
    queue = draw(st.lists(st.integers(0, max(len(state.jobs) - 1, 0)), max_size=4)) if len(state.jobs) else []
    return Decision(allocation, {row: f"reason {row}" for row in allocation}, tuple(queue))


@settings(max_examples=150, deadline=None)
@given(state=states(), data=st.data())
def test_columns_find_the_same_jobs_as_a_loop(state: ClusterState, data: st.DataObject):
    decision = data.draw(decisions(state))
    # Numbers of another type say the same, and are not taken for columns.
    other = {
        row: Placement(tuple(map(np.int32, held.nodes)), tuple(map(np.int32, held.gpus)))
        for row, held in decision.allocation.items()
    }
    one_by_one = Decision(other, decision.reasons, decision.queue)
    assert make_plan(state, decision, SPEC) == make_plan(state, one_by_one, SPEC)
