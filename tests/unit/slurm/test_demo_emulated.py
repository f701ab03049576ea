"""The half without a real Slurm."""

from __future__ import annotations

import tomllib
from pathlib import Path

from controller.slurm.embedded import load_cluster
from slurm.demo import emulated
from slurm.demo.mix import TWELVE, short_mix


def test_the_emulated_mix_asks_for_the_same_gpus_on_the_same_number_of_nodes() -> None:
    mix = emulated.emulated_mix(TWELVE)

    assert len(mix) == 13
    assert sum(training.gpus for training in mix) == sum(training.gpus * len(training.labels) for training in TWELVE)
    assert {training.request for training in mix if training.name == "bert-b"} == {("-N2", "--gpus-per-node=8")}


def test_the_description_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    description = emulated.describe(emulated.emulated_mix(TWELVE), lead_s=6.0)

    emulated.write_description(path, description)

    assert load_cluster(path) == description
    assert len(tomllib.loads(path.read_text())["jobs"]) == 13


def test_slurm_alone_runs_every_job_to_its_end_in_no_time() -> None:
    result = emulated.slurm_alone(emulated.emulated_mix(short_mix()))

    assert result.completed
    assert [job.label for job in result.jobs] == ["bert-a", "gpt", "sweep_0", "sweep_1", "resnet-c", "bert-d"]
    assert all(job.jct_s is not None and job.jct_s >= 5.0 for job in result.jobs)
