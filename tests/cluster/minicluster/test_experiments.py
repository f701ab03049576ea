"""Small runs of the experiments on a real Slurm."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slurm.experiments.comparison.comparison import ComparisonSettings, PolicyRun, compare, summary
from slurm.experiments.fidelity.experiment import evaluate, run
from slurm.experiments.fidelity.mix import KINDS, LAYER_BYTES, Lengths
from slurm.experiments.racks.__main__ import take_turn
from slurm.experiments.racks.live_cluster import rack_cluster
from slurm.experiments.racks.mix import arrivals
from slurm.experiments.uplinks import __main__ as uplinks_turns
from slurm.experiments.uplinks import live_cluster as uplinks_live
from slurm.experiments.uplinks import mix as uplinks
from slurm.prerequisites import missing

JOBS = 6
SHORT = Lengths(alone_s=4.0, least_s=3.0, most_s=6.0, gap_s=1.0)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_jobs_train_alone_and_together_and_are_predicted() -> None:
    if reasons := missing():
        pytest.skip("; ".join(reasons))
    pytest.importorskip("torch", reason="the jobs train with PyTorch: `make setup` installs it")

    measured = run(JOBS, ["sjf"], "100mbit", 3, print, SHORT)
    _, errors = evaluate(measured)

    layers = {kind.name: kind.layers for kind in KINDS}
    for row in measured.isolated:
        ring = 2 * (row.nodes - 1) / row.nodes * layers[row.kind] * LAYER_BYTES
        assert row.bytes_per_step == pytest.approx(ring, rel=0.15), "gradients cross the network, once around the ring"
    runs = measured.replays[0].runs
    assert len({run.name for run in runs}) == JOBS
    assert all(run.submit_s <= run.start_s <= run.begun_s <= run.end_s for run in runs)
    assert [job.name for job in errors[0].jobs] == [run.name.removeprefix("sjf-") for run in runs]
    assert all(job.predicted_jct_s > job.predicted_wait_s > 0 for job in errors[0].jobs)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_policies_take_turns_on_the_same_jobs() -> None:
    if reasons := missing():
        pytest.skip("; ".join(reasons))
    pytest.importorskip("torch", reason="the jobs train with PyTorch: `make setup` installs it")
    kept: list[int] = []

    def keep(runs: Sequence[PolicyRun]) -> None:
        kept.append(len(runs))

    settings = ComparisonSettings(policies=("fifo", "srtf"), jobs=3, repeats=1, length_s=(3.0, 5.0), alone_s=4.0)
    runs = compare(settings, print, keep)

    assert kept == [1, 2]
    assert [found.policy for found in runs] == ["fifo", "srtf"]
    first, second = ([job.called for job in found.jobs] for found in runs)
    assert first == second, "both policies get the same jobs"
    assert all(job.jct_s > 0 and job.runs == 1 for found in runs for job in found.jobs)
    assert [row["policy"] for row in summary(runs, settings.policies)] == ["fifo", "srtf"]


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_schedulers_of_racks_place_sleeping_jobs() -> None:
    if reasons := missing():
        pytest.skip("; ".join(reasons))
    jobs = arrivals(8, 3, (2.0, 4.0), 1.0)
    with rack_cluster(print) as cluster:
        turn = take_turn(cluster, jobs, "marl:schedulers=racks", 0)
    assert [job.gpus for job in turn.jobs] == [job.gpus for job in jobs]
    assert all(job.submit_s <= job.start_s < job.end_s for job in turn.jobs)
    assert all(1 <= job.racks <= job.nodes for job in turn.jobs)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_emulated_jobs_slow_each_other_down_on_shared_links() -> None:
    if reasons := missing():
        pytest.skip("; ".join(reasons))
    jobs = tuple(uplinks.Job(name, "alexnet", 5, 10.0, 0.0) for name in ("first", "second"))
    with uplinks_live.uplink_cluster(print) as cluster:
        packed, _ = uplinks_turns.take_turn(cluster, jobs, "fifo-skip", 0)
        apart, _ = uplinks_turns.take_turn(cluster, jobs, "headway-rl", 0)
    assert max(packed.jct_s) > 15.0, "rules let the second job share a node with the first, and its NIC"
    assert sum(apart.jct_s) < sum(packed.jct_s)
