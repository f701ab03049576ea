"""The parts of the comparison of policies that resize that need no cluster: arrivals, and the figures of a turn."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import pytest

from controller.state.journal import Journal
from slurm.experiments.elastic.__main__ import Turn, take_turn
from slurm.experiments.elastic.live_cluster import ElasticCluster, Ended, Stops
from slurm.experiments.elastic.mix import arrivals
from slurm.experiments.errors import ExperimentError
from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation


def test_arrivals_follow_from_the_seed() -> None:
    jobs = arrivals(50, 1, (20.0, 80.0), 8.0, 8)
    assert jobs == arrivals(50, 1, (20.0, 80.0), 8.0, 8)
    assert jobs != arrivals(50, 2, (20.0, 80.0), 8.0, 8)
    alone_s = [job.steps * job.compute_s / job.gpus for job in jobs]
    assert min(alone_s) > 19 and max(alone_s) < 81
    assert all(job.gpus <= job.most_gpus == 8 for job in jobs)
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)


def test_the_time_of_adjusting_is_a_share_of_the_time_since_each_first_step() -> None:
    jobs = (Ended("a", 0.0, 10.0, 60.0, (4, 2)), Ended("b", 5.0, 30.0, 80.0, (1,)))
    row = Turn("dl2", 0, jobs, Stops(1, 1, 0, adjusting_s=5.0, restarting_s=2.0), (1.0, 1.0, 1.0)).row()
    assert (row["avg_jct_s"], row["runs"], row["resizes"]) == (67.5, 3, 1)
    assert row["adjusting_share"] == pytest.approx(0.05)
    assert row["restarting_share"] == pytest.approx(0.02)


def test_runs_after_a_stop_are_resizes_or_not_and_lose_the_steps_since_the_save_that_they_do_not_begin_with() -> None:
    jobs = (
        Ended("a", 0.0, 1.0, 60.0, (4, 2, 2, 2), (0, 100, 140, 160), "7"),
        Ended("b", 0.0, 1.0, 60.0, (1,), (0,), "8"),
    )
    stops = Stops(4, 2, 1, 5.0, 2.0, {"7": (100, 150)}, ("its GPUs",) * 4)
    row = Turn("dl2", 0, jobs, stops, (1.0, 1.0, 1.0)).row()
    assert [row[name] for name in ("resizes", "same_size", "stops", "called_off")] == [1, 2, 4, 1]
    assert (row["steps_lost"], row["not_saved"]) == (10, 1)


def test_stops_are_those_of_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.sqlite"
    path.parent.mkdir()
    Journal(path).close()
    columns = (
        "job_id, raw_id, submit_time_s, restarts, cause, why, way, force, nodes, elsewhere, within_s, attempt, problem"
    )
    values = "?, ?, 0, 0, '', 'why', '', 0, '', '', 0, 0, ''"
    times = "stage, asked_s, saved_s, started_s, resumed_s, step"
    rows = [
        ("7", 7, "resumed", 50.0, 51.0, 52.0, 53.0, 10),  # before the turn
        ("7", 7, "resumed", 100.0, 101.0, 110.0, 114.0, 40),
        ("8", 8, "called off", 101.0, None, None, None, None),
        ("7", 7, "ended", 150.0, 151.0, 160.0, None, 90),  # ended before the agent reported its first step
    ]
    with closing(sqlite3.connect(path)) as journal, journal:
        for job, raw, *others in rows:
            journal.execute(
                f"INSERT INTO preemption ({columns}, {times}) VALUES ({values}, ?, ?, ?, ?, ?, ?)",
                (job, raw, *others),
            )
    found = ElasticCluster(Installation(tmp_path), cast(MiniCluster, FakeSlurm()), tmp_path).stops(99.0)
    assert (found.count, found.resumed, found.called_off) == (3, 1, 1)
    assert (found.adjusting_s, found.restarting_s) == (13.0, 4.0)
    assert (found.saved_steps, found.why) == ({"7": (40, 90)}, ("why",) * 3)


class FakeSlurm:
    """The part of a mini-cluster that takes jobs."""

    def __init__(self) -> None:
        self.env: dict[str, str] = {}
        self.submitted = 0

    def run(self, *argv: str, **_options: object) -> subprocess.CompletedProcess[str]:
        """Run sbatch."""
        self.submitted += 1
        return subprocess.CompletedProcess(argv, 0, stdout=f"{self.submitted}\n")


class InstantCluster(ElasticCluster):
    """Its jobs have ended at once, with files as the training program writes them."""

    @contextmanager
    def decided_by(self, policy: str) -> Iterator[None]:
        """Nothing is decided."""
        yield

    def wait(self, names: Sequence[str], timeout_s: float) -> None:
        """Write the files."""
        for name in names:
            with (self.folder / f"{name}.runs").open("a") as runs:
                runs.write(f"0 2 {self._submitted_s[name]}\ndone\n")

    def stops(self, since_s: float) -> Stops:
        """Return that there were none."""
        return Stops(0, 0, 0, 0.0, 0.0)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstantCluster:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return InstantCluster(Installation(tmp_path), cast(MiniCluster, FakeSlurm()), tmp_path)


def test_one_policy_with_two_option_sets_has_files_of_its_own_for_each(cluster: InstantCluster) -> None:
    jobs = arrivals(2, 1, (20.0, 80.0), 8.0, 8)
    turns = [take_turn(cluster, jobs, f"drf:elastic=true,round_s={seconds}", 0) for seconds in (30, 60)]
    assert [turn.row()["runs"] for turn in turns] == [2, 2]
    assert [turn.policy for turn in turns] == ["drf:elastic=true,round_s=30", "drf:elastic=true,round_s=60"]


def test_a_name_of_files_is_used_once(cluster: InstantCluster) -> None:
    (job,) = arrivals(1, 1, (20.0, 80.0), 8.0, 8)
    cluster.start(job, "name")
    with pytest.raises(ExperimentError, match="a job of this name has run"):
        cluster.start(job, "name")
