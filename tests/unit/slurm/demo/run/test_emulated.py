"""The half without a real Slurm."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.slurm.embedded import load_cluster
from simulator.slowdown.profiles.files import load_profiles
from slurm.demo.display.view import JobView, Stage
from slurm.demo.run import emulated
from slurm.demo.workload import TWELVE, Training, short_mix
from slurm.errors import SpecError


def test_the_emulated_mix_asks_for_the_same_gpus_on_the_same_number_of_nodes() -> None:
    mix = emulated.emulated_mix(TWELVE)

    assert len(mix) == 13
    assert sum(training.gpus for training in mix) == sum(training.gpus * len(training.labels) for training in TWELVE)
    requests = {training.name: training.request for training in mix}
    assert requests["bert-c"] == ("-N2", "--gpus-per-node=4")
    assert requests["resnet-c"] == ("-n2", "--gpus=8"), "a job that names no nodes may be spread, as on a real Slurm"


def test_the_description_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    description = emulated.describe(emulated.emulated_mix(TWELVE), lead_s=6.0)

    emulated.write_description(path, description)

    assert load_cluster(path) == description
    assert len(tomllib.loads(path.read_text())["jobs"]) == 13


def test_profiles_are_those_of_the_training_script() -> None:
    assigned = _constants(Path(emulated.__file__).parents[1] / "train.py")
    layer_bytes = 4 * (assigned["WIDTH"] ** 2 + assigned["WIDTH"])
    profiles = load_profiles(emulated.PROFILES).models

    assert {size: profile.bytes for size, profile in profiles.items()} == {
        size: layers * layer_bytes for size, layers in assigned["LAYERS"].items()
    }
    assert {size: profile.compute_s for size, profile in profiles.items()} == assigned["GPU_TIME_S"]


def _constants(module: Path) -> dict[str, Any]:
    """Return the constants of a module, without an import, which would need torch."""
    return {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(module.read_text()).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }


def test_jobs_that_share_links_take_longer() -> None:
    """Two jobs of four GPUs on each of the same two nodes: their bytes take twice as long."""
    wide = next(training for training in emulated.emulated_mix(TWELVE) if training.name == "bert-c")
    ours = [replace(wide, name=name, submit_at_s=0.0) for name in ("one", "other")]

    alone, together = emulated.slurm_alone(ours[:1]), emulated.slurm_alone(_on_two_nodes(ours))

    compute_s, reduce_s = 0.04, 4202496 / 25e6
    assert alone.jobs[0].step_ms == pytest.approx(1000 * (compute_s + reduce_s), rel=0.02)
    assert [job.step_ms for job in together.jobs[:2]] == pytest.approx(
        [1000 * (compute_s + 2 * reduce_s)] * 2, rel=0.02
    )


def _on_two_nodes(jobs: list[Training]) -> list[Training]:
    """And others, for a long time, on the rest of the cluster."""
    full = next(training for training in emulated.emulated_mix(TWELVE) if training.name == "resnet-d")
    return [*(replace(full, name=f"full-{n}", submit_at_s=0.0, steps=1000) for n in range(2)), *jobs][::-1]


def test_a_faster_nic_makes_steps_shorter_and_no_rate_is_an_error() -> None:
    mix = emulated.emulated_mix(short_mix())
    slow, fast = emulated.slurm_alone(mix, "100mbit"), emulated.slurm_alone(mix, "1gbit")

    assert slow.makespan_s is not None and fast.makespan_s is not None
    assert slow.makespan_s > fast.makespan_s
    with pytest.raises(SpecError, match="rate"):
        emulated.slurm_alone(mix, "fast")


def test_the_time_of_a_step_is_shown_for_jobs_that_are_done() -> None:
    mix = [replace(training, array=0) for training in TWELVE[:3]]
    jobs = {
        "bert-a": JobView("bert-a", "1", Stage.DONE, start_s=10.0, end_s=10.0 + mix[0].steps * 0.2),
        "resnet-a": JobView("resnet-a", "2", Stage.FAILED, start_s=10.0, end_s=11.0),
        "gpt": JobView("gpt", "3", Stage.DONE, end_s=11.0),
    }

    assert emulated.step_ms(mix, jobs) == {"bert-a": pytest.approx(200.0)}


def test_slurm_alone_runs_every_job_to_its_end_in_no_time() -> None:
    result = emulated.slurm_alone(emulated.emulated_mix(short_mix()))

    assert result.completed
    assert [job.label for job in result.jobs] == ["bert-a", "gpt", "sweep_0", "sweep_1", "resnet-c", "bert-d"]
    assert all(job.jct_s is not None and job.jct_s >= 0.3 for job in result.jobs)
