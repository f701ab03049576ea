"""The simulator as the backend of trainings: only the setup and the user's options determine the data of a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from policies.api import Decision, PolicySpec, load_policy
from policies.errors import TrainingError, UnfinishedError
from policies.learned.training.agents import AgentInEnvironment, UniformAgent
from policies.learned.training.systems import FIGURE, TEST_SEEDS, SetupOverrides, TrainingSetup, WorkloadSpec
from policies.model import ClusterState
from policies.selection import present_placements
from simulator.agents.policy_agent import PolicyAgent
from simulator.cluster.cluster import Cluster
from simulator.envs import CONTENTION, ELASTIC
from simulator.results.metrics import average_jct_s
from simulator.slowdown.profiles.files import save_profiles
from simulator.slowdown.profiles.model_profiles import ModelProfile
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators import generate
from simulator.traces.generators.contention_rl import ContentionRL
from simulator.traces.trace import NS_PER_S, Trace
from simulator.traces.write import write_trace
from simulator.training.backend import FIGURES, SimulatorBackend, simulator_backend
from simulator.training.data_sets import of_files, of_setup

SETUP = TrainingSetup(
    workloads=(
        WorkloadSpec("contention-rl", {"jobs": 16, "demands": (1, 2, 4)}),
        WorkloadSpec("contention-rl", {"jobs": 16, "mix": "heavy", "demands": (1, 2)}),
    ),
    cluster="2x4",
    slowdown=("pair-table",),
    window=20,
)
CLUSTER = Cluster.uniform(2, 4)
SACCT = "JobIDRaw|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES|ReqTRES|User|Account|Partition|State|JobName"


class Idle:
    """A policy that starts no job."""

    spec = PolicySpec("idle", "a test")

    def decide(self, state: ClusterState) -> Decision:
        return Decision(present_placements(state, state.running))


class Counting:
    """Another policy that counts how often it was asked."""

    def __init__(self) -> None:
        self.inner = load_policy("fifo-skip")
        self.asked = 0

    @property
    def spec(self) -> PolicySpec:
        return self.inner.spec

    def decide(self, state: ClusterState) -> Decision:
        self.asked += 1
        return self.inner.decide(state)


def trace_file(path: Path, jobs: int = 100, largest: int = 4) -> Path:
    demands = tuple(range(1, largest + 1))
    workload = ContentionRL(jobs=jobs, seed=3, arrivals="poisson", load=0.8, cluster_gpus=8, demands=demands)
    write_trace(generate("contention-rl", workload), path)
    return path


@pytest.fixture
def made() -> Iterator[SimulatorBackend]:
    it = simulator_backend(SETUP, SetupOverrides())
    yield it
    it.close()


def test_training_validation_and_tests_share_no_trace(made: SimulatorBackend) -> None:
    data = made.data_of
    assert len(data.validation) == 10
    assert len(data.tests) == 2 * len(TEST_SEEDS)
    validation = [trace.name for trace in data.validation]
    tests = [data.tests[number].name for number in range(20)]
    training = [data.training[number].name for number in (0, 1, 2, len(data.training) - 1)]
    assert not set(validation) & set(tests)
    assert not (set(validation) | set(tests)) & set(training)
    assert validation[:4] == ["contention-rl-500", "contention-rl-500", "contention-rl-501", "contention-rl-501"]


def test_the_training_data_is_described_in_a_phrase(made: SimulatorBackend) -> None:
    assert made.data == "contention-rl, 16 jobs, batch (normal; heavy); on 2x4; slowdown pair-table"
    loaded = WorkloadSpec("sched2", {"load": 0.9})
    setup = TrainingSetup(workloads=(loaded, WorkloadSpec("philly", {"jobs": 50})), cluster="15x8")
    said = "sched2, 1000 jobs, bursty (load 0.9) and philly, 50 jobs, poisson; on 15x8; slowdown locality"
    assert simulator_backend(setup, SetupOverrides()).data == said


def test_workloads_take_turns(made: SimulatorBackend) -> None:
    normal, heavy = made.data_of.training[0], made.data_of.training[1]
    assert max(normal.num_gpus) == 4
    assert max(heavy.num_gpus) == 2
    assert made.data_of.training[0].same_jobs(normal)
    assert not made.data_of.training[2].same_jobs(normal)


@pytest.mark.parametrize(
    "other",
    [
        SetupOverrides(cluster="2x8"),
        SetupOverrides(slowdown=("link-sharing",)),
        SetupOverrides(slowdown=("none",)),
    ],
)
def test_options_of_users_change_the_training_data_and_its_digest(
    made: SimulatorBackend, other: SetupOverrides
) -> None:
    its = simulator_backend(SETUP, other)
    assert its.data_sha256 != made.data_sha256
    assert its.data != made.data
    assert simulator_backend(SETUP, other).data_sha256 == its.data_sha256
    fifo = load_policy("fifo-skip")
    assert its.validate(fifo)[FIGURE] != made.validate(fifo)[FIGURE]


def test_measured_profiles_change_speeds_and_digest(tmp_path: Path) -> None:
    setup = replace(
        SETUP,
        cluster="4x4",
        slowdown=("link-sharing",),
        workloads=(WorkloadSpec("contention-rl", {"jobs": 20, "demands": (6,)}),),
    )
    before = simulator_backend(setup, SetupOverrides())
    slow = {
        name: ModelProfile(compute_s=each.compute_s, bytes=each.bytes * 50)
        for name, each in before.profiles.models.items()
    }
    save_profiles(replace(paper_profiles(), models=slow), tmp_path / "mine.json")
    after = simulator_backend(setup, SetupOverrides(profiles=str(tmp_path / "mine.json")))
    assert after.data_sha256 != before.data_sha256
    assert "mine.json" in after.data
    fifo = load_policy("fifo-skip")
    assert after.validate(fifo)["avg_service_s"] > 1.2 * before.validate(fifo)["avg_service_s"]
    state = after.example()
    assert state.profiles is not None


def test_a_users_trace_is_cut_in_time(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "mine.csv")
    its = simulator_backend(SETUP, SetupOverrides(traces=(str(path),)))
    data = its.data_of
    parts = [data.training, data.validation, data.tests]
    assert [sum(map(len, part)) for part in parts] == [60, 20, 20]
    assert [len(part) for part in parts] == [3, 1, 1]
    ids = [job_id for part in parts for trace in part for job_id in trace.job_ids]
    assert ids == sorted(ids)
    assert all(trace.submit_ns[0] == 0 for part in parts for trace in part)
    assert str(path) in its.data
    assert its.notes == ()
    changed = trace_file(tmp_path / "mine.csv", jobs=101)
    assert simulator_backend(SETUP, SetupOverrides(traces=(str(changed),))).data_sha256 != its.data_sha256


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ({"windows": False}, ["mine, jobs 81 to 100"]),
        ({"windows": False, "whole": True}, ["mine, jobs 11 to 100"]),
        ({"whole": True}, [f"mine, jobs {begin} to {end}" for begin, end in ((11, 32), (33, 55), (56, 78), (79, 100))]),
    ],
)
def test_policies_are_compared_from_a_warm_cluster(tmp_path: Path, overrides: dict[str, Any], names: list[str]) -> None:
    path = trace_file(tmp_path / "mine.csv")
    its = simulator_backend(SETUP, SetupOverrides(traces=(str(path),), warm_up="fifo-skip", **overrides))
    found = its.compare({name: load_policy(name) for name in ("fifo-skip", "fewest-gpus")}, None, lambda _share: None)

    assert list(found.traces) == names
    assert "begins as full as fifo-skip has left the cluster" in found.says
    fifo, fewest = found.figures["fifo-skip"], found.figures["fewest-gpus"]
    assert [each["jobs"] for each in fifo] == [each["finished"] for each in fewest]
    assert [each["carried"] for each in fifo] == [each["carried"] for each in fewest]
    assert max(each["carried"] or 0 for each in fifo) > 0
    assert [each["avg_jct_s"] for each in fifo] != [each["avg_jct_s"] for each in fewest]


def submitted_at(path: Path, seconds: list[int]) -> Path:
    rows = [f"{row},{second},1,600" for row, second in enumerate(seconds)]
    path.write_text("\n".join(["job_id,submit_time_s,num_gpus,duration_s", *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("min_gpus", "2"),
        ("max_gpus", "4"),
        ("epochs", "5000"),
        ("num_ps", "0"),
        ("length_steps", "7"),
    ],
)
def test_all_columns_that_change_a_training_count_for_the_digest(tmp_path: Path, column: str, value: str) -> None:
    def digest(min_gpus: str, max_gpus: str, epochs: str, num_ps: str, length_steps: str, name: str = "x") -> str:
        path = tmp_path / "mine.csv"
        row = f"{min_gpus},{max_gpus},{epochs},{num_ps},{length_steps},{name}"
        head = "job_id,submit_time_s,num_gpus,duration_s,min_gpus,max_gpus,epochs,num_ps,length_steps,name"
        path.write_text("\n".join([head, *(f"{job},{60 * job},2,600,{row}" for job in range(40))]) + "\n")
        return of_files([str(path)], CLUSTER, 20).sha256

    usual = {"min_gpus": "1", "max_gpus": "2", "epochs": "10", "num_ps": "1", "length_steps": "3"}
    assert digest(**usual) == digest(**usual, name="y")
    assert digest(**usual) != digest(**{**usual, column: value})


def test_the_digest_of_a_trace_without_these_columns_is_that_of_earlier_versions(tmp_path: Path) -> None:
    path = submitted_at(tmp_path / "plain.csv", [60 * job for job in range(40)])
    found = of_files([str(path)], CLUSTER, 20).sha256
    assert found == "82322701e6a5d13a95b7580aae8e4e2b60679fa7578a090fc45eec274af67693"


@pytest.mark.parametrize("windows", [True, False])
def test_jobs_for_training_and_validation_are_never_compared_on(tmp_path: Path, windows: bool) -> None:
    # Given an array job of 60 tasks across both cuts of the trace, at 60 % and 80 %
    seconds = [60 * min(row, 40) for row in range(100)] + [60 * row for row in range(100, 120)]
    path = submitted_at(tmp_path / "array.csv", seconds)
    # When it is divided
    data = of_files([str(path)], CLUSTER, 5, windows_of_tests=windows)
    # Then the parts begin at the next instant, also where most of the last fifth is left out
    rows = [row for part in data.parts for row in range(part.part.begin, part.part.end)]
    assert rows == list(range(100, 120))
    assert data.parts[0].trace.submit_ns[99] < data.parts[0].trace.submit_ns[100]
    used = {job for trace in (*data.training, *data.validation) for job in trace.job_ids}
    assert not used & {data.parts[0].trace.job_ids[row] for row in rows}


def test_policies_are_not_compared_where_no_job_comes_after_the_training(tmp_path: Path) -> None:
    path = submitted_at(tmp_path / "batch.csv", [0] * 40)
    its = simulator_backend(SETUP, SetupOverrides(traces=(str(path),)))
    assert sum(map(len, its.data_of.training)) == 24  # it is good for a training
    assert any("policies are not compared on it" in note for note in its.notes)
    with pytest.raises(TrainingError, match="no job was submitted after those for training"):
        its.compare({"fifo": load_policy("fifo")}, None, lambda _share: None)
    whole = simulator_backend(SETUP, SetupOverrides(traces=(str(path),), whole=True, windows=False))
    assert [part.part.text() for part in whole.data_of.parts] == ["jobs 1 to 40"]


def trace_of(path: Path, gpus: Sequence[int]) -> Path:
    """Write a trace of jobs of these numbers of GPUs, one each five minutes."""
    submit = np.arange(len(gpus)) * 300 * NS_PER_S
    ids = [str(row) for row in range(len(gpus))]
    write_trace(Trace.of("mine", ids, submit, list(gpus), [600 * NS_PER_S] * len(gpus)), path)
    return path


PLACES_NO_3 = replace(SETUP, places=lambda _nodes, wanted: wanted != 3)


def test_plain_policies_are_compared_where_no_job_is_left_for_a_training(tmp_path: Path) -> None:
    path = trace_of(tmp_path / "mine.csv", [3] * 60 + [1] * 40)
    its = simulator_backend(PLACES_NO_3, SetupOverrides(traces=(str(path),)))
    assert "left out of episodes: 60 jobs" in its.notes[0]
    found = its.compare({"fifo": load_policy("fifo")}, None, lambda _share: None)
    assert (len(found.traces), found.notes) == (1, ())
    for use in (its.trained_range, its.example, lambda: its.validate(load_policy("fifo"))):
        with pytest.raises(TrainingError, match=f"{path}: no job is left for training or for validation"):
            use()


def test_an_agent_that_can_place_no_job_for_tests_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = trace_of(tmp_path / "mine.csv", [1] * 80 + [3] * 20)
    its = simulator_backend(PLACES_NO_3, SetupOverrides(traces=(str(path),)))
    agent = AgentInEnvironment(UniformAgent(), CONTENTION, {})
    with pytest.raises(TrainingError, match="the system can place none of the jobs for tests"):
        its.compare({"uniform": agent}, None, lambda _share: None)
    cold = simulator_backend(PLACES_NO_3, SetupOverrides(traces=(str(trace_of(path, [1, 3] * 50)),), warm_up=""))
    found = cold.compare({"fifo": load_policy("fifo")}, None, lambda _share: None)
    assert [note.partition(": ")[2] for note in found.notes] == [
        "left out of episodes: 50 jobs of a number of GPUs that the system cannot place (3)"
    ]


def test_beside_an_agent_all_begin_on_an_empty_cluster(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "mine.csv")
    its = simulator_backend(SETUP, SetupOverrides(traces=(str(path),), whole=True))
    agent = AgentInEnvironment(UniformAgent(), CONTENTION, {"candidates": 4, "split": "packed", "nodes": "rules"})
    try:
        found = its.compare({"fifo": load_policy("fifo"), "uniform": agent}, None, lambda _share: None)
    finally:
        its.close()
    assert "empty cluster (agents in environments begin so" in found.says
    assert [each["carried"] for each in found.figures["fifo"]] == [0] * 5


def test_the_range_of_training_traces_is_recorded(made: SimulatorBackend, tmp_path: Path) -> None:
    found = made.trained_range()
    assert found["gpus_per_job"] == (1.0, 4.0)
    assert found["duration_s"] == (3600.0, 3600.0)
    assert "load" not in found  # all jobs arrive at once
    assert found["queue"] == (0.0, 16.0)
    assert 0.0 == found["wait_s"][0] < found["wait_s"][1] < 16 * 3600.0
    assert (found["nodes"], found["gpus_per_node"]) == ((2.0, 2.0), (4.0, 4.0))
    path = trace_file(tmp_path / "mine.csv")
    of_trace = simulator_backend(SETUP, SetupOverrides(traces=(str(path),))).trained_range()
    assert 0.3 < of_trace["load"][0] <= of_trace["load"][1] < 3
    assert simulator_backend(SETUP, SetupOverrides(traces=(str(path),), whole=True)).trained_range() == {}


def test_jobs_that_the_cluster_cannot_hold_are_left_out_and_reported(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "large.csv", largest=8)
    data = of_files([str(path)], Cluster.uniform(1, 4), 50)
    assert all(trace.num_gpus.max() <= 4 for trace in (*data.training, *data.validation, *data.tests))
    assert len(data.notes) == 1
    assert "that can never fit on the cluster" in data.notes[0]


@pytest.mark.parametrize("prefix", ["", "sacct:"])
def test_output_of_sacct_is_training_data(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "history.txt"
    rows = [
        f"{row}|{1000 + 60 * row}|{1010 + 60 * row}|{2010 + 60 * row}|1000|60|gres/gpu={1 + row % 4}||ada|a|p|COMPLETED|job"
        for row in range(40)
    ]
    path.write_text("\n".join([SACCT, *rows, "99|1|1|2|0|60|gres/gpu=1||ada|a|p|FAILED|job"]) + "\n")
    its = simulator_backend(SETUP, SetupOverrides(traces=(f"{prefix}{path}",)))
    assert sum(map(len, its.data_of.training)) == 24
    assert its.data_of.training[0].num_gpus.tolist()[:5] == [1, 2, 3, 4, 1]
    assert any("never ran" in note for note in its.notes)
    assert its.validate(load_policy("fifo"))[FIGURE] >= 1000


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (SetupOverrides(traces=("no-such.csv",)), ["no-such.csv"]),
        (SetupOverrides(cluster="4by8"), ["4by8", "NxG"]),
        (SetupOverrides(cluster="1x2"), ["a job of 4 GPUs does not fit a cluster of 2"]),
        (SetupOverrides(slowdown=("molasses",)), ["molasses"]),
        (SetupOverrides(profiles="nowhere.json"), ["nowhere.json"]),
    ],
)
def test_impossible_options_are_an_error_of_training(overrides: SetupOverrides, words: list[str]) -> None:
    with pytest.raises(TrainingError) as caught:
        simulator_backend(SETUP, overrides)
    assert all(word in str(caught.value) for word in words)


def test_a_trace_too_short_for_an_evaluation_is_refused(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "short.csv", jobs=20)
    with pytest.raises(TrainingError, match=r"20 jobs to learn from.*at least 30"):
        simulator_backend(SETUP, SetupOverrides(traces=(str(path),)))


def test_environments_run_on_the_training_traces_in_processes(made: SimulatorBackend) -> None:
    envs = made.envs("headway/Contention-v0", 4, split="packed", nodes="rules")
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert envs.num_envs == 4
    seen, _ = envs.reset(seed=[1, 2, 3, 4])
    assert seen.shape == (4, 2, 8)
    unwrapped: Any = envs
    names = unwrapped.call("trace")
    assert all(int(trace.name.rpartition("-")[2]) >= 1 << 20 for trace in names)
    made.close()
    assert envs.closed


def test_environments_with_wrong_options_are_an_error_of_training(made: SimulatorBackend) -> None:
    with pytest.raises(TrainingError, match="there is no option 'colour'"):
        made.envs("headway/Contention-v0", 2, colour="red")


def test_validation_is_the_mean_of_whole_runs(made: SimulatorBackend) -> None:
    figures = made.validate(load_policy("fifo"))
    assert list(figures) == list(FIGURES)
    assert next(iter(figures)) == FIGURE
    assert all(np.isfinite(value) for value in figures.values())
    assert figures == simulator_backend(SETUP, SetupOverrides()).validate(load_policy("fifo"))
    assert average_jct_s is FIGURES[FIGURE]


def test_a_policy_that_starts_no_job_is_reported(made: SimulatorBackend) -> None:
    with pytest.raises(UnfinishedError, match=r"idle left 16 of 16 jobs of contention-rl-50\d unfinished"):
        made.validate(Idle())


def test_play_gives_back_what_the_caller_keeps(made: SimulatorBackend) -> None:
    first, second = Counting(), Counting()
    played = made.play(
        [first, second, load_policy("srtf")], [0, 1, 0], keep=lambda policy: getattr(policy, "asked", None)
    )
    assert [each.kept is not None and each.kept > 0 for each in played] == [True, True, False]
    assert first.asked == second.asked == 0
    assert [len(each.jct_s) for each in played] == [16, 16, 16]
    assert all(each.figures[FIGURE] == pytest.approx(each.jct_s.mean()) for each in played)
    again = made.play([Counting()], [0])
    np.testing.assert_array_equal(again[0].jct_s, played[0].jct_s)


def test_example_shows_cluster_and_models(made: SimulatorBackend) -> None:
    state = made.example()
    assert state.nodes.gpus.tolist() == [4, 4]
    assert len(state.pending) == 16
    assert not len(state.running)


def test_a_setup_for_another_cluster_draws_for_that() -> None:
    setup = TrainingSetup(workloads=(WorkloadSpec("contention-rl", {"jobs": 10, "arrivals": "poisson", "load": 0.9}),))
    small, large = (of_setup(setup, Cluster.uniform(nodes, 8)) for nodes in (4, 8))
    spans: list[Trace] = [small.training[0], large.training[0]]
    assert spans[0].submit_ns[-1] > 1.5 * spans[1].submit_ns[-1]


def test_beside_an_agent_with_speeds_of_its_own_policies_act_where_it_acts() -> None:
    setup = TrainingSetup(workloads=(WorkloadSpec("dl2", {"jobs": 4}),), cluster="2x8", slowdown=("none",))
    made = simulator_backend(setup, SetupOverrides())
    drf, uniform = load_policy("drf", {"elastic": True}), AgentInEnvironment(UniformAgent(), ELASTIC)
    try:
        beside = made.compare({"drf": drf, "uniform": uniform}, 1, lambda _share: None).figures["drf"]
        there = made.compare({"drf": AgentInEnvironment(PolicyAgent(drf), ELASTIC)}, 1, lambda _share: None).figures[
            "drf"
        ]
        alone = made.compare({"drf": drf}, 1, lambda _share: None).figures["drf"]
    finally:
        made.close()
    assert [each["avg_jct_s"] for each in beside] == [each["avg_jct_s"] for each in there]
    assert [each["avg_jct_s"] for each in beside] != [each["avg_jct_s"] for each in alone]
