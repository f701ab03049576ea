"""headway-policy train --submit on a real Slurm: each seed trains in a job, to the weights of a training beside it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("submitit", reason="jobs are submitted through submitit")

from slurm.minicluster.cluster import MiniCluster
from tests.unit.policies.learned.commands import START, headway_policy, install_example

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SMALL = ("learned-order", "--rounds", "4", "--set", "tries=2", "--seed", "5")
JOBS_S = 300.0


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until `holds()`. Raises AssertionError when it takes too long."""
    deadline = time.monotonic() + JOBS_S
    while not holds():
        assert time.monotonic() < deadline, "the jobs take too long"
        time.sleep(0.2)


def logs(folder: Path) -> str:
    """Return the output of the jobs."""
    return "\n".join(path.read_text() for path in (folder / "runs/slurm").glob("*.err"))


def test_seeds_train_in_slurm_jobs(boot_minicluster: Callable[..., MiniCluster], tmp_path: Path) -> None:
    cluster = boot_minicluster(nodes=1, gpus=1)
    env = install_example(tmp_path / "site")
    headway_policy("train", *SMALL, "--out", "alone", env=env, cwd=tmp_path)
    # When two seeds are submitted on a login node
    command = [*START, "train", *SMALL, "--seeds", "2", "--submit", "--slurm", "time=20", "--out", "runs", "--json"]
    names = {name: env[name] for name in ("PYTHONPATH", "PATH")}
    done = cluster.run_on(
        "n1", "env", f"--chdir={tmp_path}", *(f"{key}={value}" for key, value in names.items()), *command, timeout=120.0
    )
    jobs = json.loads(done.stdout)["jobs"]
    assert [job["seed"] for job in jobs] == [5, 6]
    # And the first is requeued while it trains: two minutes later it begins anew
    eventually((tmp_path / "runs/seed-5/settings.json").exists)
    cluster.run("scontrol", "requeue", jobs[0]["job"])
    # Then their jobs train, each in its folder
    eventually(lambda: not cluster.run("squeue", "--noheader").stdout.strip())
    assert logs(tmp_path).count("is trained on") == 3
    for kind in ("safetensors", "json"):
        name = f"best/learned-order.{kind}"
        assert (tmp_path / "runs/seed-5" / name).exists(), logs(tmp_path)
        assert (tmp_path / "runs/seed-5" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
        assert (tmp_path / "runs/seed-6" / name).exists()
