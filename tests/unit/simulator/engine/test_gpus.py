"""Which GPUs jobs have: followed if the policy names them or a model needs them, checked, and copied."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import pytest

from policies.api import Decision, load_policy
from policies.model import ClusterState, JobState, Placement
from policies.state.gpu_layout import indices
from simulator.cluster.cluster import Cluster, cluster_of
from simulator.engine.settings import NodeChange, Settings
from simulator.engine.simulation import Simulation
from simulator.errors import DecisionError
from simulator.kernel.constants import NO_JOBS
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from tests.unit.simulator.engine.build import FREE, Asked, Does, ran, spans_s, trace_of

NODE = """
nodes = [{count = 1, gpus = 8, sockets = 2, switches = 4, nvlink = 4}]
network = {nvlink_gbs = 50.0, pcie_gbs = 12.0, bridge_gbs = 10.0, socket_gbs = 8.0}
"""


def names(masks: dict[str, int]) -> Callable[[ClusterState], Decision]:
    """Start every job, on node 0, with these GPUs; running jobs stay."""

    def decide(state: ClusterState) -> Decision:
        jobs = state.jobs
        found = {}
        for row, job in enumerate(jobs.ids):
            gpus = int(jobs.num_gpus[row])
            found[row] = Placement((0,), (gpus,), gpu_masks=(masks[job],) if job in masks else ())
        return Decision(found)

    return decide


def simulation(policy: object, *rows: tuple[float, int, float], model: str = "", text: str = NODE) -> Simulation:
    cluster = cluster_of(tomllib.loads(text))
    slowdown = build([model], topology=cluster.topology, profiles=paper_profiles()) if model else None
    return Simulation(trace_of(*rows), cluster, policy, FREE, slowdown)  # type: ignore[arg-type]


def masks_now(run: Simulation) -> dict[str, int]:
    jobs = run.state().jobs
    rows = [row for row in range(len(jobs)) if jobs.state[row] == JobState.RUNNING]
    return {jobs.ids[row]: int(jobs.placement_gpu_mask[jobs.placement_offset[row]]) for row in rows}


def test_jobs_have_the_gpus_that_are_named_and_others_the_lowest_free_ones() -> None:
    run = simulation(
        Does(names({"j0": 0b11, "j2": 0b1100_0000}), exact_gpus=True), (0, 2, 10), (1, 2, 20), (1, 2, 20), (11, 1, 5)
    )
    run.run(until_s=5)
    assert masks_now(run) == {"j0": 0b11, "j1": 0b1100, "j2": 0b1100_0000}
    run.run(until_s=12)
    assert masks_now(run) == {"j1": 0b1100, "j2": 0b1100_0000, "j3": 0b1}
    run.run()
    assert spans_s(run) == spans_s(ran(run.trace, "1x8", Does(names({})))), "naming costs no time"


def test_a_job_without_names_takes_what_the_named_ones_of_the_same_decision_leave() -> None:
    run = simulation(Does(names({"j1": 0b11}), exact_gpus=True), (0, 2, 10), (0, 2, 10))
    run.run(until_s=5)
    assert masks_now(run) == {"j0": 0b1100, "j1": 0b11}


@pytest.mark.parametrize(
    ("masks", "complaint"),
    [
        ({"j0": 0b11, "j1": 0b110}, "job j1 on node 0: GPU 1 is named, and another job has it"),
        ({"j1": 0b1}, "1 GPUs (0) are named for 2; name 2, or none"),
        ({"j1": 1 << 8 | 1}, "GPU 8 does not exist there; name some of 0 to 7"),
    ],
)
def test_wrong_names_are_refused(masks: dict[str, int], complaint: str) -> None:
    run = simulation(Does(names(masks), exact_gpus=True), (0, 2, 10), (1, 2, 10))
    with pytest.raises(DecisionError, match=complaint.replace("(", r"\(").replace(")", r"\)")):
        run.run()


def test_a_policy_that_only_counts_may_not_name_gpus() -> None:
    with pytest.raises(
        DecisionError, match="it names GPUs, and its spec says that it only counts them; set exact_gpus"
    ):
        simulation(Does(names({"j0": 0b11})), (0, 2, 10)).run()
    with pytest.raises(DecisionError, match="its spec says that it only counts them"):
        simulation(Does(names({"j0": 0b11})), (0, 2, 10), model="gpu-links").run()


def test_a_caller_without_a_policy_may_name_gpus() -> None:
    run = simulation(None, (0, 2, 10), (1, 2, 10))
    assert run.advance()
    run.apply(names({})(run.state()))
    assert run.advance()
    run.apply(names({"j1": 0b1100_0000})(run.state()))
    assert masks_now(run) == {"j0": 0b11, "j1": 0b1100_0000}


def test_other_gpus_for_a_running_job_are_a_move() -> None:
    wanted = {"j0": 0b11}
    run = simulation(Does(names(wanted), exact_gpus=True), (0, 2, 10), (2, 2, 10), (4, 1, 1))
    run.run(until_s=3)
    assert masks_now(run) == {"j0": 0b11, "j1": 0b1100}
    wanted |= {"j0": 0b1100, "j1": 0b11}
    run.run(until_s=4.5)
    assert masks_now(run) == {"j0": 0b1100, "j1": 0b11, "j2": 0b1_0000}
    assert [(job.moves, job.stops) for job in run.jobs()] == [(1, 0), (1, 0), (0, 0)]
    run.run()


def test_a_copy_follows_its_own_gpus_and_may_get_a_policy_that_names_some() -> None:
    run = simulation(Does(names({})), (0, 2, 10), (5, 1, 10))
    run.run(until_s=4)
    twin = run.fork(load_policy("fifo-skip", {"gpus": "packed"}))
    twin.run(until_s=6)
    assert masks_now(twin) == {"j0": 0b11, "j1": 0b100}
    other = twin.fork()
    other.run(until_s=12)
    assert (masks_now(twin), masks_now(other)) == ({"j0": 0b11, "j1": 0b100}, {"j1": 0b100})
    assert masks_now(run) == {"j0": 0}


def test_runs_of_policies_that_count_follow_nothing() -> None:
    run = simulation(load_policy("fifo-skip"), (0, 2, 10))
    run.run(until_s=4)
    assert run.loop.track == NO_JOBS
    assert masks_now(run) == {"j0": 0}
    assert run.state().gpu_layouts[0].nvlink == (1, 1, 1, 1, 2, 2, 2, 2)


def test_closer_gpus_are_faster() -> None:
    # Jobs of 1, 1 and 4 GPUs come; the first ends; a job of 4 then gets GPU 0 and 4 to 7 of those that are free: two sockets.
    rows = ((0, 1, 5), (0, 2, 100), (1, 1, 100), (6, 4, 100))
    plain = simulation(load_policy("fifo-skip"), *rows, model="gpu-links")
    close = simulation(load_policy("fifo-skip", {"gpus": "packed"}), *rows, model="gpu-links")
    for run, mask in ((plain, 0b111_0001), (close, 0b1111_0000)):
        run.run(until_s=7)
        assert masks_now(run)["j3"] == mask
        run.run()
    profile = paper_profiles().unknown
    sent = 2 * 3 / 4 * profile.bytes / 1e9
    slower = profile.step_s(sent / 8.0) / profile.step_s(sent / 50.0)
    assert _duration_s(close, 3) == pytest.approx(100)
    assert _duration_s(plain, 3) == pytest.approx(100 * slower)
    assert slower > 1.01


def _duration_s(run: Simulation, job: int) -> float:
    begin, end = spans_s(run)[f"j{job}"]
    return end - begin


@pytest.mark.parametrize("options", [{"gpus": "packed"}, {}])
def test_no_gpu_has_two_jobs_whatever_happens(options: dict[str, object]) -> None:
    cluster = Cluster.uniform(4, 8)
    trace = trace_of(*((10.0 * at, 1 + at * at % 11, 40.0 + 13 * at % 50) for at in range(60)))
    changes = tuple(NodeChange(25.0 * at, at % 4, "down" if at % 8 < 3 else "up") for at in range(1, 30))
    slowdown = build(["gpu-links"], topology=cluster.topology, profiles=paper_profiles())
    policy = load_policy("fifo-skip", options)
    run = Simulation(trace, cluster, policy, Settings(changes=changes), slowdown)
    seen = 0
    while run.advance():
        run.decide()
        state = run.state()
        taken = [0] * 4
        jobs = state.jobs
        for node, gpus, mask in zip(
            jobs.placement_node.tolist(), jobs.placement_gpus.tolist(), jobs.placement_gpu_mask.tolist(), strict=True
        ):
            assert len(indices(mask)) == gpus
            assert not taken[node] & mask
            taken[node] |= mask
            seen += 1
    assert seen > 200


def test_the_same_jobs_start_whether_the_rule_or_the_policy_decides() -> None:
    rows = [(float(at), 1 + at % 5, 7.0 + at) for at in range(60)]
    plain = ran(trace_of(*rows), "2x8", Asked(load_policy("fifo-skip")))
    close = ran(trace_of(*rows), "2x8", load_policy("fifo-skip", {"gpus": "packed"}))
    assert spans_s(plain) == spans_s(close)
