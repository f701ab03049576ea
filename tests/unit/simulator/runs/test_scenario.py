"""The scenario that the runs of several policies share."""

from __future__ import annotations

from pathlib import Path

from policies.api import load_policy
from simulator.runs.options import RunOptions
from simulator.runs.scenario import Scenario
from tests.unit.simulator.commands import write


def draws(trace: Path, cluster: str) -> dict[str, tuple[int, int]]:
    """Return the estimate of each job's duration, and whether it must not be stopped; all jobs are submitted at once."""
    options = RunOptions(trace, cluster, estimates="noisy:1", preemptible_share=0.5, drop_impossible=True, seed=3)
    scenario = Scenario.of(options, record=False)
    simulation = scenario.simulation(load_policy("fifo"))
    assert simulation.advance()
    ids = scenario.trace.job_ids
    return {ids[job.index]: (job.estimate, job.fixed) for job in simulation.jobs()}


def test_a_jobs_draws_do_not_depend_on_which_others_are_dropped(tmp_path: Path) -> None:
    trace = write(tmp_path / "t.csv", [(0.0, 9 if row % 3 == 0 else 1, 100.0) for row in range(30)])
    all_jobs, some = draws(trace, "2x8"), draws(trace, "1x8")

    assert (len(all_jobs), len(some)) == (30, 20)
    assert len(set(all_jobs.values())) > 20
    assert {job: all_jobs[job] for job in some} == some
