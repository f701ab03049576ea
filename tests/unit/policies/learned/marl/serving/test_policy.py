"""The policy on clusters of any shape: decisions are valid, jobs are put off and forwarded, intervals, and the guard."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.api import Decision, load_policy
from policies.errors import WeightsError
from policies.learned.marl.policy import Marl
from policies.learned.marl.spread_guard import consolidated
from policies.learned.marl.system import ENCODER, NAME
from policies.learned.weights import weights
from policies.model import ClusterState, Placement, Split
from policies.serving.client import PolicyClient
from policies.serving.server import PolicyServer
from simulator.cli import main as cli
from tests.unit.policies.states.cluster import Job, Node, cluster, states
from tests.unit.policies.states.valid import check

ALONE = Marl(guard=False)


def in_racks(state: ClusterState, *racks: int) -> ClusterState:
    return replace(state, nodes=replace(state.nodes, rack=np.array(racks)))


def two_racks(*jobs: Job, gpus: int = 4) -> ClusterState:
    """Four nodes in two racks."""
    return in_racks(cluster([Node(gpus)] * 4, list(jobs)), 0, 0, 1, 1)


def submitted(state: ClusterState, *times_s: float) -> ClusterState:
    return replace(state, jobs=replace(state.jobs, submit_time_s=np.array(times_s)))


@settings(max_examples=20, deadline=None)
@given(state=states(), policy=st.sampled_from([ALONE, Marl("", "partitions", groups=2), Marl("", 2, guard=False)]))
def test_decisions_are_valid_on_any_cluster(state: ClusterState, policy: Marl) -> None:
    racks = np.arange(len(state.nodes)) // 3
    state = in_racks(state, *racks.tolist())
    decision = policy.decide(state)
    check(state, decision, policy.spec)
    assert policy.decide(state) == decision


def test_its_spec() -> None:
    spec = Marl(interval_s=1800).spec
    assert (spec.name, spec.preempts, spec.resizes, spec.exact_gpus, spec.round_s) == (
        "marl",
        False,
        False,
        False,
        60.0,
    )
    assert ALONE.spec.round_s == 0.0 and Marl(interval_s=20).spec.round_s == 20.0


@pytest.mark.parametrize("layout", [[0], [0, 0, 0], [0, 1, 1, 1, 2], [7, 3, 7, 3]])
def test_racks_of_any_sizes(layout: list[int]) -> None:
    nodes = [Node(2 + 2 * (place % 3)) for place in range(len(layout))]
    state = in_racks(cluster(nodes, [Job(gpus=2), Job(gpus=1), Job(gpus=2)]), *layout)
    decision = ALONE.decide(state)
    check(state, decision, ALONE.spec)
    free = sum(node.gpus for node in nodes)
    assert sum(each.num_gpus for each in decision.allocation.values()) == min(5, free) or free == 2
    assert all(f" of {len(set(layout))}" in decision.reasons[row] for row in decision.allocation)


def test_where_nothing_fits_jobs_wait_whole() -> None:
    state = two_racks(Job(gpus=13, occupied={0: 4, 1: 4, 2: 4, 3: 1}), Job(gpus=4), Job(gpus=17), Job(gpus=3))
    decision = ALONE.decide(state)
    assert set(decision.allocation) == {0, 3}
    assert decision.allocation[3] == Placement((3,), (3,))
    assert decision.reasons[1] == decision.reasons[2] == "no scheduler has room for all its workers"
    full = two_racks(*(Job(gpus=4, occupied={node: 4}) for node in range(4)), Job())
    assert set(ALONE.decide(full).allocation) == {0, 1, 2, 3}
    assert ALONE.decide(cluster([Node(0)], [Job()])).allocation == {}


def test_workers_without_room_in_their_rack_are_forwarded() -> None:
    # job 102 belongs to the first rack, which has one GPU; 103 to the second one, which has all it needs
    state = two_racks(Job(gpus=4, occupied={0: 4}), Job(gpus=3, occupied={1: 3}), Job(gpus=3), Job(gpus=2))
    decision = ALONE.decide(state)
    assert {1} < set(decision.allocation[2].nodes)
    assert "forwarded" in decision.reasons[2]
    assert set(decision.allocation[3].nodes) <= {2, 3}
    assert decision.reasons[3].endswith("scheduler 1 of 2")


def test_shapes_that_jobs_ask_for() -> None:
    jobs = [
        Job(gpus=4, split=Split.FIXED, min_nodes=2, max_nodes=2),
        Job(gpus=4, max_nodes=1),
        Job(gpus=3, min_nodes=3),
        Job(gpus=1, exclusive=True),
    ]
    state = in_racks(cluster([Node(4)] * 8, jobs), 0, 0, 0, 0, 1, 1, 1, 1)
    decision = ALONE.decide(state)
    check(state, decision, ALONE.spec)
    assert set(decision.allocation) == {0, 1, 2, 3}


def test_a_job_on_one_node_is_begun_only_where_all_of_it_fits() -> None:
    busy = [Job(gpus=3, occupied={node: 3}) for node in range(3)]
    decision = ALONE.decide(two_racks(*busy, Job(gpus=4, max_nodes=1)))
    assert decision.allocation[3] == Placement((3,), (4,))


def test_partitions_and_numbers_divide_the_nodes() -> None:
    jobs = [Job(gpus=1, nodes=frozenset({0, 1, 2})), Job(gpus=1, nodes=frozenset({3}))]
    state = two_racks(*jobs)
    assert Marl(schedulers="partitions", guard=False).decide(state).reasons[1].endswith("scheduler 1 of 2")
    for number in (1, 3):
        reasons = Marl(schedulers=number, guard=False).decide(state).reasons
        assert reasons[0].endswith(f" of {number}")


def test_jobs_come_to_a_scheduler_at_the_next_interval() -> None:
    state = replace(submitted(two_racks(Job(), Job(), Job()), 0.0, 99.0, 101.0), time_s=150.0)
    decision = Marl(interval_s=100, guard=False).decide(state)
    assert set(decision.allocation) == {0, 1}
    assert "next interval" in decision.reasons[2]
    later = replace(state, time_s=200.0)
    assert set(Marl(interval_s=100, guard=False).decide(later).allocation) == {0, 1, 2}
    assert set(ALONE.decide(state).allocation) == {0, 1, 2}


def test_the_guard_starts_an_overdue_job_that_the_agents_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    state = submitted(two_racks(Job(estimate_s=10.0), Job(estimate_s=10.0)), 0.0, 999.0)
    made = Marl()
    monkeypatch.setattr(Marl, "_decided", lambda *_: (Decision({}), {}))
    decision = made.decide(state)
    assert set(decision.allocation) == {0, 1} and "fits and is overdue" in decision.guard
    assert not ALONE.decide(state).allocation
    # until its interval has begun, a job waits by design
    assert not Marl(interval_s=1800).decide(state).guard


def test_a_job_that_the_agents_divide_needlessly_is_placed_by_best_fit() -> None:
    state = two_racks(Job(gpus=3, occupied={0: 3}), Job(gpus=4), Job(gpus=1), Job(gpus=3), Job(gpus=4), gpus=5)
    agents = Decision(
        {0: Placement((0,), (3,)), 1: Placement((0, 1), (2, 2)), 2: Placement((3,), (1,)), 3: Placement((1, 2), (1, 2)),
         4: Placement((2, 3), (2, 2))},
        dict.fromkeys(range(1, 5), "the agents"),
    )  # fmt: skip
    decision = consolidated(state, agents, [1, 2, 3, 4])
    assert decision.allocation == {
        0: Placement((0,), (3,)), 1: Placement((1,), (4,)), 2: Placement((1,), (1,)), 3: Placement((2,), (3,)),
        4: Placement((3,), (4,)),
    }  # fmt: skip
    assert decision.guard == "the agents would divide job 101 among 2 nodes: best fit"
    assert "best fit" in decision.reasons[1]
    assert decision.reasons[2] == "the agents would take emptier nodes for job 102 than it needs: best fit"
    # where no node has all of a job that one can have, it waits
    busy = [Job(gpus=3, occupied={node: 3}) for node in range(4)]
    full = two_racks(*busy, Job(gpus=3), gpus=5)
    scattered = Decision({4: Placement((0, 1), (2, 1))})
    assert consolidated(full, scattered, [4]).allocation == {}
    together = Decision({1: Placement((1,), (4,))})
    assert consolidated(state, together, [1]) is together


def test_jobs_are_kept_together_outside_of_the_training_only(monkeypatch: pytest.MonkeyPatch) -> None:
    scattered = Decision({0: Placement((0, 1), (1, 1))})
    monkeypatch.setattr(Marl, "_decided", lambda *_: (scattered, {}))
    inside = cluster([Node(4)] * 16, [Job(gpus=2, estimate_s=3600.0)])
    assert Marl().decide(inside) == scattered
    outside = cluster([Node(4)] * 15, [Job(gpus=2, estimate_s=3600.0)])
    assert Marl().decide(outside).allocation[0] == Placement((0,), (2,))
    assert ALONE.decide(outside).allocation == scattered.allocation


def test_a_state_outside_of_the_training_is_remarked() -> None:
    found = ALONE.decide(two_racks(Job(gpus=5))).outside
    assert "1 of 1 jobs request 5 GPUs (trained: 1 to 4)" in found and "4 nodes (trained: 16)" in found
    inside = cluster([Node(4)] * 16, [Job(gpus=2, estimate_s=3600.0)])
    assert ALONE.decide(inside).outside == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedulers": "pods"}, "schedulers is 'pods'; give racks, partitions, or a number"),
        ({"schedulers": 0}, "schedulers is 0"),
        ({"interval_s": -1}, "interval_s is -1"),
        ({"groups": 0}, "groups is 0"),
        ({"groups": "numa"}, "groups is 'numa'; give sockets, or a number"),
        ({"guard": 1}, "guard is 1"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Marl(**options)  # type: ignore[arg-type]


def test_weights_for_one_data_center_are_refused(tmp_path: Path) -> None:
    arrays, card = weights.load(weights.pretrained(), NAME, system=NAME, encoder=ENCODER)
    for name, changed in (("paper", {"network": "paper"}), ("own", {"shared": False}), ("width", {"width": 31})):
        weights.save(tmp_path / name / "best", NAME, arrays, replace(card, recipe={**card.recipe, **changed}))
        with pytest.raises(WeightsError):
            Marl(weights=str(tmp_path / name))
    weights.save(tmp_path / "sound" / "best", NAME, arrays, card)
    state = two_racks(Job(gpus=3), Job())
    assert Marl(weights=str(tmp_path / "sound"), guard=False).decide(state) == ALONE.decide(state)


async def test_it_is_served(tmp_path: Path) -> None:
    """Over gRPC it decides as here."""
    address = f"unix://{tmp_path / 'policy.sock'}"
    state = two_racks(Job(gpus=3, occupied={0: 3}), Job(gpus=2), Job(gpus=6))
    server = PolicyServer(load_policy("marl", {"guard": False}), address)
    await server.start()
    try:
        async with PolicyClient(address) as client:
            assert await client.describe(60.0) == ALONE.spec
            assert await client.decide(state, 60.0) == ALONE.decide(state)
    finally:
        await server.stop(0.5)


def test_a_trace_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`headway-sim run --policy marl` to the end, with intervals, after which jobs that came in them start."""
    (tmp_path / "cluster.toml").write_text(
        "\n".join(f'[[nodes]]\ncount = 2\ngpus = 4\nsockets = 2\nrack = "r{rack}"' for rack in range(2))
        + '\n[network]\nkind = "racks"\nnic_gbs = 1.25\nuplink_gbs = 2.5\n'
    )
    rows = "".join(f"j{at},{at * 50 + (at > 0)},{1 + at % 4},300,vgg-16\n" for at in range(12))
    (tmp_path / "trace.csv").write_text("job_id,submit_time_s,num_gpus,duration_s,model\n" + rows)
    words = f"run --json --trace {tmp_path}/trace.csv --cluster {tmp_path}/cluster.toml --slowdown link-sharing"
    monkeypatch.setattr(sys, "argv", ["headway-sim", *words.split(), "--policy", "marl:interval_s=100"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    found = json.loads(out)
    assert found["finished"] == 12
    # all but the first wait for 49 or 99 s
    assert 65 <= found["avg_jct_s"] - found["avg_service_s"] < 120
