"""The history as a trace that the simulator reads, and the shape of the cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from policies.learned.dl2.learning.cluster_shape import shape_of
from policies.learned.dl2.learning.replay_trace import LONGEST_S, replay_of, why_too_few
from simulator.cluster.cluster import read_cluster
from simulator.traces.read import read_trace
from simulator.training.data_sets import of_files
from tests.unit.policies.learned.dl2.learning.examples import RECORD, records
from tests.unit.policies.states.cluster import Job, Node, cluster


def test_the_simulator_reads_the_trace(tmp_path: Path) -> None:
    unknown = replace(RECORD, job_id="8", submit_time_s=RECORD.submit_time_s - 60, model="", batch_size=-1, epochs=0.0)
    replay = replay_of([RECORD, unknown])
    (tmp_path / "history.csv").write_text(replay.csv)
    trace = read_trace(tmp_path / "history.csv")
    # by arrival, from 0 on; 2,600 GPU seconds are 1,300 s with 2 GPUs
    assert trace.submit_ns.tolist() == [0, 60_000_000_000]
    assert trace.duration_ns.tolist() == [1_300_000_000_000] * 2
    assert (trace.num_gpus.tolist(), trace.min_gpus.tolist(), trace.max_gpus.tolist()) == ([2, 2], [1, 1], [4, 4])
    assert trace.model == ("", "resnet-50")
    assert trace.batch_size.tolist() == [-1, 64]
    assert trace.extra == {"epochs": ("100", "20"), "num_ps": ("0", "0")}
    # the training has the same jobs, each from one GPU on
    (tmp_path / "training.csv").write_text(replay.training_csv)
    assert read_trace(tmp_path / "training.csv").num_gpus.tolist() == [2, 2]
    assert read_trace(tmp_path / "training.csv").min_gpus.tolist() == [1, 1]
    assert (replay.jobs, replay.left_out, replay.first_s, replay.last_s) == (
        2,
        0,
        unknown.submit_time_s,
        RECORD.submit_time_s,
    )


def test_jobs_that_are_too_long_for_an_episode_are_left_out() -> None:
    seconds = LONGEST_S + 1
    long = replace(
        RECORD,
        job_id="9",
        finish_time_s=RECORD.submit_time_s + seconds,
        service_s=seconds,
        sizes=((2, seconds),),
    )
    assert (replay_of([long]).jobs, replay_of([long]).left_out) == (0, 1)
    assert (replay_of([long, RECORD]).jobs, replay_of([long, RECORD]).left_out) == (1, 1)


def test_the_part_that_is_held_back_has_enough_windows(tmp_path: Path) -> None:
    for count, runtime_s in ((250, 500.0), (256, 500.0), (295, 640.0), (400, 800.0), (5000, 800.0)):
        replay = replay_of([replace(record, service_s=runtime_s, sizes=((1, runtime_s),)) for record in records(count)])
        assert why_too_few(replay, "") == ""
        (tmp_path / "history.csv").write_text(replay.csv)
        (tmp_path / "cluster.toml").write_text(shape_of(cluster([Node(4)] * 2, [])))
        data = of_files([str(tmp_path / "history.csv")], read_cluster(tmp_path / "cluster.toml"), replay.window)
        assert len(data.tests) >= 5
        # each with at least as many jobs as ran at once
        assert min(map(len, data.tests)) >= int(replay.at_once)
        # and no job of it is in the training
        assert sum(map(len, (*data.training, *data.validation, *data.tests))) == count


def test_windows_that_would_be_smaller_than_the_load_are_refused() -> None:
    # given jobs every minute that take 45 minutes each: 45 run at once
    busy = [
        replace(record, finish_time_s=record.submit_time_s + 2700, service_s=2700.0, sizes=((2, 2700.0),))
        for record in records(1400)
    ]
    for count in (250, 600):
        replay = replay_of(busy[:count])
        assert replay.window >= replay.at_once > 35
        why_not = why_too_few(replay, "3 ended more than learn_days ago")
        assert f"jobs ran at once on average, so a window has {replay.window} jobs at least" in why_not
        assert "5 are needed" in why_not
        assert "3 ended more than learn_days ago" in why_not
    # with enough history the windows are large enough
    assert why_too_few(replay_of(busy), "") == ""
    assert replay_of(busy).window >= 45
    few = why_too_few(replay_of(busy[:100]), "")
    assert few.startswith("100 jobs can be replayed; 250 are needed")


def test_the_shape_of_the_cluster(tmp_path: Path) -> None:
    state = cluster([Node(4), Node(8, available=False), Node(0)], [Job()])
    state = replace(
        state, nodes=replace(state.nodes, rack=np.array([0, 3, 0]), nic_gbyte_s=np.array([5.0, np.nan, np.nan]))
    )
    (tmp_path / "cluster.toml").write_text(shape_of(state))
    found = read_cluster(tmp_path / "cluster.toml")
    assert (found.gpus, found.racks) == ((4, 8), (0, 1))
    assert shape_of(cluster([Node(0)], [])) == ""
