"""A small run of the experiment on a real Slurm."""

from __future__ import annotations

import pytest

from slurm.prerequisites import missing
from tests.fidelity.__main__ import evaluate, experiment
from tests.fidelity.measuring.mix import KINDS, LAYER_BYTES, Lengths

JOBS = 6
SHORT = Lengths(alone_s=4.0, least_s=3.0, most_s=6.0, gap_s=1.0)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_jobs_train_alone_and_together_and_are_predicted() -> None:
    if reasons := missing():
        pytest.skip("; ".join(reasons))
    pytest.importorskip("torch", reason="the jobs train with PyTorch: `make setup` installs it")

    measured = experiment(JOBS, ["sjf"], "100mbit", 3, print, SHORT)
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
