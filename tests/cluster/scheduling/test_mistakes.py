"""On a real Slurm: a mistake of an operator is reported with the file, the key and what to do, and has no effect on users."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.testbed.programs import program
from tests.cluster.live import Live, live


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live(policy=None, controller=False) as world:
        yield world


@pytest.fixture(autouse=True)
def idle(world: Live) -> Iterator[None]:
    yield
    if "controller" in world.headway.processes:
        world.headway.stop("controller")
    # It would run out by itself; the next test begins without one, and takes a lease for that of its own controller.
    (world.headway.runtime_dir / "lease").unlink(missing_ok=True)
    world.clear()


def start(world: Live, *, user: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the controller until it gives up."""
    prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"] if user else []
    return subprocess.run(
        [*prefix, *program("headway-controller"), "run", "--config", str(world.headway.config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **world.headway.environment},
    )


def sbatch_still_works(world: Live) -> None:
    job = world.sbatch("--gres=gpu:1", seconds=1)
    world.until_state(job, "RUNNING", "COMPLETED")


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("polcy_address = 'x'", "polcy_address: no such key"),
        ("policy_deadline_s = 'soon'", "policy_deadline_s"),
        ("partitions = []", "partitions"),
        ("partitions = ['dl,other']", "partitions"),
        ("this is no toml", "not valid TOML"),
    ],
)
def test_a_bad_settings_file_names_the_key(world: Live, line: str, reported: str) -> None:
    world.headway.configure(world.cluster)
    text = world.headway.config.read_text()
    key = line.split(" ", maxsplit=1)[0]
    kept = [old for old in text.splitlines() if not old.startswith(f"{key} ")]
    world.headway.config.write_text("\n".join([*kept, line]) + "\n")
    done = start(world)
    assert done.returncode == 1
    assert f"{world.headway.config}" in done.stderr
    assert reported in done.stderr
    assert "Traceback" not in done.stderr
    world.headway.configure(world.cluster)


def test_a_partition_that_slurm_does_not_have_is_named(world: Live) -> None:
    world.headway.configure(world.cluster)
    config = world.headway.config
    text = config.read_text()
    check = [*program("headway-controller"), "check-config", "--config", str(config)]
    environment = {**os.environ, **world.headway.environment}
    right = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False, env=environment)
    kept = [line for line in text.splitlines() if not line.startswith("partitions ")]
    config.write_text("\n".join(["partitions = ['dl', 'd1']", *kept]) + "\n")
    wrong = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False, env=environment)
    world.headway.start("controller", [*program("headway-controller"), "run", "--config", str(config)])
    log = world.headway.folder / "controller.log"
    try:
        world.until(lambda: "partitions_not_found" in log.read_text(), "the log names the partition")
    finally:
        world.headway.stop("controller")
        config.write_text(text)
    assert (right.returncode, right.stdout) == (0, f"{config}: in order\n")
    assert wrong.returncode == 1
    assert f"{config}: partitions: Slurm has no partition d1" in wrong.stderr


def test_a_missing_settings_file_says_what_to_write(world: Live) -> None:
    world.headway.config.unlink()
    done = start(world)
    assert done.returncode == 1
    assert "no such file; write one" in done.stderr
    world.headway.configure(world.cluster)


def test_a_runtime_folder_that_may_not_be_written_is_named(world: Live) -> None:
    world.headway.configure(world.cluster, runtime_dir="/proc/headway")
    done = start(world)
    assert done.returncode == 1
    assert "/proc/headway: cannot be made" in done.stderr
    world.headway.settings.pop("runtime_dir")
    world.headway.configure(world.cluster)


def test_a_damaged_journal_is_set_aside_whole_and_the_controller_goes_on(world: Live) -> None:
    journal = world.headway.folder / "state" / "journal.sqlite"
    journal.parent.mkdir(mode=0o700, exist_ok=True)
    journal.write_bytes(b"not a database" * 1000)
    world.headway.start("controller", [*program("headway-controller"), "run", "--config", str(world.headway.config)])
    lease = world.headway.runtime_dir / "lease"
    world.until(lease.exists, "the controller goes on with a new journal")
    (aside,) = journal.parent.glob("journal.sqlite.damaged-*")
    assert aside.read_bytes() == b"not a database" * 1000


def test_hung_slurm_commands_hang_nothing_and_hold_nothing(world: Live, tmp_path: Path) -> None:
    # given programs of Slurm that never answer
    for name in ("scontrol", "scancel", "squeue"):
        script = tmp_path / name
        script.write_text("#!/bin/sh\nsleep 1000\n")
        script.chmod(0o755)
    world.headway.configure(world.cluster, slurm_bin=str(tmp_path), slurm_timeout_s=1.0)
    # when the controller starts
    command = [*program("headway-controller"), "run", "--config", str(world.headway.config)]
    world.headway.start("controller", command)
    world.until(lambda: "scontrol" in world.headway.log("controller"), "it says what hangs")
    # then there is no lease, and users notice nothing
    assert not (world.headway.runtime_dir / "lease").exists()
    sbatch_still_works(world)
    world.headway.stop("controller")
    for key in ("slurm_bin", "slurm_timeout_s"):
        world.headway.settings.pop(key)
    world.headway.configure(world.cluster)


def test_doctor_sees_a_slurm_conf_without_the_plugin(world: Live) -> None:
    conf = world.cluster.slurm_conf
    before = conf.read_text()
    conf.write_text("\n".join(line for line in before.splitlines() if not line.startswith("JobSubmitPlugins")) + "\n")
    try:
        world.cluster.run("scontrol", "reconfigure", check=False)
        done = world.headway.headway("doctor", "--json", check=False)
    finally:
        conf.write_text(before)
        world.cluster.run("scontrol", "reconfigure", check=False)
    assert done.returncode == 1
    found = json.loads(done.stdout)["findings"]
    plugin = [item for item in found if "JobSubmitPlugins" in json.dumps(item)]
    assert plugin
    assert any(item["level"] == "error" and item["mend"] for item in plugin)
