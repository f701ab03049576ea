"""The scenario that the runs of several policies share."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.api import load_policy
from simulator.runs.one import result_of
from simulator.runs.options import RunOptions
from simulator.runs.scenario import Scenario
from simulator.traces.trace import NS_PER_S
from tests.unit.simulator.commands import headway_sim, write

SPEEDS = """
[[nodes]]
count = 1
gpus = 8
[[nodes]]
count = 1
gpus = 8
speed = 0.25
"""


def durations(tmp_path: Path, *slowdown: str) -> tuple[list[str], list[float]]:
    """Return the models of a run, and how long two jobs ran of which the second is on a node with a quarter of the speed."""
    (tmp_path / "speeds.toml").write_text(SPEEDS)
    trace = write(tmp_path / "two.csv", [(0.0, 8, 100.0), (0.0, 8, 100.0)])
    result = result_of(RunOptions(trace, str(tmp_path / "speeds.toml"), slowdown=slowdown or ("locality",)), "fifo")
    models = result.assumptions["slowdown"]
    assert isinstance(models, list)
    return models, (result.service_ns / NS_PER_S).tolist()


def test_the_speeds_of_nodes_count_unless_all_models_are_excluded(tmp_path: Path) -> None:
    assert durations(tmp_path) == (["locality", "node-speed"], [100, 400])
    assert durations(tmp_path, "max-min") == (["max-min", "node-speed"], [100, 400])
    named = "node-speed:sensitivity=profile"
    assert durations(tmp_path, named) == ([named], [100, 400])
    assert durations(tmp_path, "none") == (["none"], [100, 100])


def test_nodes_of_equal_speed_need_no_model_of_it(tmp_path: Path) -> None:
    trace = write(tmp_path / "two.csv", [(0.0, 8, 100.0)])
    assert result_of(RunOptions(trace, "2x8"), "fifo").assumptions["slowdown"] == ["locality"]


def test_links_inside_nodes_that_no_model_reads_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = tmp_path / "links.toml"
    cluster.write_text("[[nodes]]\ngpus = 8\ncount = 2\nnvlink = 4\nswitches = 4\n[network]\npcie_gbs = 12.0\n")
    trace = write(tmp_path / "two.csv", [(0.0, 8, 100.0)])

    def messages(command: str, *words: object) -> str:
        given = ["--trace", trace, "--cluster", cluster, *words]
        code, _, err = headway_sim(monkeypatch, capsys, command, *given)
        assert code == 0
        return err.strip()

    said = f"headway-sim: switches, nvlink, pcie_gbs of {cluster} slow no job down; add --slowdown gpu-links to have them count"
    for command in ("compare", "latency"):
        assert messages(command, "--policies", "fifo") == said
    assert messages("run", "--policy", "fifo") == said
    assert "pcie_gbs" not in messages("run", "--policy", "fifo", "--slowdown", "link-sharing")
    for models in (("gpu-links",), ("none",)):
        assert messages("run", "--policy", "fifo", "--slowdown", *models) == ""


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
