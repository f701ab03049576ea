"""The mix is what the demonstration promises: sizes, node counts, ways to ask for GPUs."""

from __future__ import annotations

from slurm.demo.workload import GPUS_PER_NODE, NODES, TWELVE, short_mix


def test_the_mix_has_at_least_twelve_scripts_in_three_sizes_on_one_to_four_nodes() -> None:
    assert len(TWELVE) >= 12
    assert {training.size for training in TWELVE} == {"small", "medium", "large"}
    assert {training.nodes for training in TWELVE} == {1, 2, 3, 4}


def test_the_mix_asks_for_gpus_in_every_way_and_has_an_array() -> None:
    requests = " ".join(training.request_text for training in TWELVE)
    for option in ("--gres=gpu:", "--gpus=", "--gpus-per-node="):
        assert option in requests
    assert any(training.array for training in TWELVE)


def test_every_job_fits_the_cluster_and_divides_its_gpus_evenly() -> None:
    for training in TWELVE:
        per_node, rest = divmod(training.gpus, training.nodes)
        assert rest == 0
        assert per_node <= GPUS_PER_NODE
        assert training.nodes <= NODES


def test_labels_are_unique_and_arrays_have_one_per_task() -> None:
    labels = [label for training in TWELVE for label in training.labels]
    assert len(labels) == len(set(labels))
    assert {"sweep_0", "sweep_1"} <= set(labels)


def test_scripts_know_nothing_of_headway() -> None:
    for training in TWELVE:
        text = training.script()
        assert text.startswith("#!/bin/bash\n#SBATCH --job-name=")
        assert "headway" not in text.lower()
        assert f"#SBATCH --time={training.time_limit_min}\n" in text
        assert f"srun python train.py --size {training.size} --steps {training.steps}" in text


def test_an_array_says_so_in_its_script_and_names_its_logs_by_task() -> None:
    sweep = next(training for training in TWELVE if training.array)
    assert "#SBATCH --array=0-1\n" in sweep.script()
    assert "#SBATCH --output=%x_%a.log\n" in sweep.script()


def test_longer_jobs_have_longer_limits_so_that_srtf_and_backfill_differ() -> None:
    by_size = {training.size: training.time_limit_min for training in TWELVE}
    assert by_size["small"] < by_size["medium"] < by_size["large"]


def test_the_short_mix_keeps_every_kind() -> None:
    mix = short_mix()
    assert {training.size for training in mix} == {"small", "medium", "large"}
    assert any(training.array for training in mix)
    assert all(training.steps < 10 for training in mix)
