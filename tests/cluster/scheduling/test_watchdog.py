"""The watchdog and the doctor beside a real Slurm, as the commands that operators run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.slurm.model.job import JobKey, ResourceRequest
from controller.state.journal import Journal
from controller.state.ledger import Ledger, PinRecord
from slurm.minicluster.cluster import ClusterSpec, MiniCluster
from tests.birthmarks import without_birthmark
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.stand_in import StandIn


class Machine:
    """A cluster, where a controller ran."""

    def __init__(self, cluster: MiniCluster, stand_in: StandIn, folder: Path) -> None:
        self.cluster = cluster
        self.stand_in = stand_in
        self.state_dir = folder / "state"
        self.config = folder / "controller.toml"
        self.config.write_text(
            'partitions = ["dl"]\n'
            f'runtime_dir = "{stand_in.runtime_dir}"\nstate_dir = "{self.state_dir}"\n'
            f'slurm_conf = "{cluster.slurm_conf}"\npolicy_address = "unix://{folder}/policy.sock"\n'
        )

    def run(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", f"from {module} import main; main()", *arguments],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def watchdog(self) -> subprocess.CompletedProcess[str]:
        return self.run("controller.daemon.cli", "watchdog", "--config", str(self.config))

    def sbatch(self, *options: str) -> str:
        # Not over before the watchdog has taken its mark off (of what is over Slurm changes nothing), however late it is.
        script = "#!/bin/sh\nuntil [ -e end ]; do sleep 0.1; done\n"
        done = self.cluster.run("sbatch", "--parsable", "--output=job-%j.out", *options, stdin=script, user="daemon")
        return done.stdout.strip()

    def show(self, job: str) -> str:
        return self.cluster.run("scontrol", "-o", "show", "job", job).stdout

    def until(self, job: str, *words: str) -> None:
        """Wait until Slurm shows these words about the job."""
        deadline = time.monotonic() + 60
        while not set(words) <= set(self.show(job).split()):
            assert time.monotonic() < deadline, self.show(job)
            time.sleep(0.2)

    def key(self, job: str) -> JobKey:
        submitted = self.show(job).split("SubmitTime=")[1].split()[0]
        return JobKey(job, int(time.mktime(time.strptime(submitted, "%Y-%m-%dT%H:%M:%S"))))

    def completes(self, job: str) -> None:
        """Let the jobs of this test run to their end, and wait for that of one of them."""
        (self.cluster.files.work / "end").touch()
        deadline = time.monotonic() + 60
        while "JobState=COMPLETED" not in self.show(job):
            assert time.monotonic() < deadline, self.show(job)
            time.sleep(0.2)


@pytest.fixture(scope="module")
def booted() -> Iterator[tuple[MiniCluster, StandIn]]:
    skip_unless_possible()
    with StandIn() as stand_in:
        lua = stand_in.script("job_submit.lua")
        hook = stand_in.script("hooks/slurmctld_event.sh")
        spec = ClusterSpec(
            name=unique_name(), nodes=2, gpus=8, job_submit_lua=lua, prolog_slurmctld=hook, epilog_slurmctld=hook
        )
        with MiniCluster(spec) as cluster:
            yield cluster, stand_in


@pytest.fixture
def machine(booted: tuple[MiniCluster, StandIn], tmp_path: Path) -> Iterator[Machine]:
    cluster, stand_in = booted
    stand_in.beat()
    (cluster.files.work / "end").unlink(missing_ok=True)
    yield Machine(cluster, stand_in, tmp_path)
    cluster.run("scancel", "--user=daemon")
    cluster.wait_idle()


def test_jobs_held_by_a_controller_that_died_run(machine: Machine) -> None:
    # Given held jobs, one of them an array, and one that its user holds
    jobs = [machine.sbatch("--gpus=2"), machine.sbatch("--array=1-3", "--gpus-per-node=1")]
    own = machine.sbatch("--hold", "--gpus=1")

    # When the controller is there, then the watchdog leaves them alone
    assert machine.watchdog().returncode == 0
    assert all("Priority=0" in machine.show(job) for job in jobs)

    # When it has died, then they run, and what its user holds stays held
    machine.stand_in.beat(age_s=1000)
    done = machine.watchdog()
    assert done.returncode == 0, done.stderr
    machine.completes(jobs[0])
    for task in (1, 2, 3):
        machine.completes(f"{jobs[1]}_{task}")
    assert "headway:hold" not in machine.show(jobs[0])
    assert "Priority=0" in machine.show(own)


def test_a_job_that_was_about_to_start_gets_its_own_request_back(machine: Machine) -> None:
    # Given a job that the controller had pinned when it was killed
    job = machine.sbatch("--gpus=12")
    pin = "TresPerJob= NumNodes=2-2 TresPerNode=gres:gpu:6 ReqNodeList=n1,n2 StartTime=now"
    machine.cluster.run("scontrol", "update", f"jobid={job}", *pin.split())
    key = machine.key(job)
    ledger = Ledger()
    ledger.originals[key] = ResourceRequest(min_nodes=1, max_nodes=0, num_tasks=1, num_cpus=1, gpus_per_job=12)
    ledger.pins[key] = PinRecord(
        nodes=("n1", "n2"), gpus=(6, 6), restarts=0, pinned_at_s=time.time(), policy="srtf", reason="shortest"
    )
    journal = Journal(machine.state_dir / "journal.sqlite")
    journal.save_jobs(ledger, [key])
    journal.close()
    machine.stand_in.beat(age_s=1000)

    # When the watchdog looks
    done = machine.watchdog()

    # Then Slurm chooses the nodes itself
    assert done.returncode == 0, done.stderr
    shown = machine.show(job)
    assert "TresPerJob=gres:gpu:12" in shown
    assert "ReqNodeList=(null)" in shown
    machine.completes(job)


def test_a_placed_job_leaves_a_node_that_dies_while_the_controller_is_away(machine: Machine) -> None:
    # Given two jobs on n1, of a controller that died: by its journal, Headway has chosen the node of the first
    machine.stand_in.beat(age_s=1000)
    placed, own = [machine.sbatch("--gpus-per-node=1", "--nodes=1", "--nodelist=n1", "--requeue") for _ in range(2)]
    for job in (placed, own):
        machine.until(job, "JobState=RUNNING", "NodeList=n1")
    ledger = Ledger()
    for job, nodes in ((placed, ()), (own, ("n1",))):
        ledger.originals[machine.key(job)] = ResourceRequest(
            min_nodes=1, max_nodes=1, num_tasks=1, num_cpus=1, gpus_per_node=1, required_nodes=nodes
        )
        ledger.pins[machine.key(job)] = PinRecord(
            nodes=("n1",), gpus=(1,), restarts=0, pinned_at_s=time.time(), policy="srtf", reason="shortest"
        )
    journal = Journal(machine.state_dir / "journal.sqlite")
    journal.save_jobs(ledger, ledger.originals)
    journal.close()

    # When the node dies, and Slurm has requeued them with the node. Its slurmd runs on and registers again; drained, it takes none
    machine.cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    machine.cluster.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    machine.cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    try:
        for job in (placed, own):
            machine.until(job, "JobState=PENDING", "Restarts=1", "ReqNodeList=n1")
        done = machine.watchdog()

        # Then the first may start elsewhere, and the second waits for the node that its user named
        assert done.returncode == 0, done.stderr
        machine.until(placed, "ReqNodeList=(null)")
        machine.until(own, "ReqNodeList=n1")
        shown = [without_birthmark(machine.show(job)) for job in (placed, own)]
        assert all("headway:" not in text and "Priority=0 " not in text for text in shown)
        machine.cluster.run("scontrol", "update", f"jobid={placed}", "StartTime=now")  # Slurm waits two minutes
        machine.until(placed, "JobState=RUNNING", "NodeList=n2")
        machine.completes(placed)
    finally:
        machine.cluster.run("scontrol", "update", "nodename=n1", "state=resume")


def test_neither_a_damaged_journal_nor_wrong_settings_keep_jobs_held(machine: Machine) -> None:
    # Given held jobs, one of them pinned, over a journal that is rubbish and settings with mistakes
    pinned, other = machine.sbatch("--gpus=2"), machine.sbatch("--gpus=2")
    machine.cluster.run("scontrol", "update", f"jobid={pinned}", "NumNodes=1-1", "ReqNodeList=n2", "StartTime=now")
    machine.state_dir.mkdir()
    (machine.state_dir / "journal.sqlite").write_bytes(b"rubbish!" * 4096)
    settings = machine.config.read_text()
    machine.config.write_text(f"{settings}no_such_key = 7\npoll_interval_s = ?\n")
    machine.stand_in.beat(age_s=1000)

    # When the watchdog looks
    done = machine.watchdog()

    # Then they run; and it says what is wrong
    assert done.returncode == 1
    assert "settings_not_in_order" in done.stderr
    assert "journal_not_readable" in done.stderr
    assert "Traceback" not in done.stderr
    machine.completes(pinned)
    machine.completes(other)


def test_a_slurmctld_that_is_away_is_an_error_and_the_next_look_mends_it(machine: Machine) -> None:
    job = machine.sbatch("--gpus=1")
    machine.stand_in.beat(age_s=1000)
    time.sleep(1)  # slurmctld writes new jobs down within a second
    settings = machine.config.read_text()
    machine.config.write_text(settings + "slurm_timeout_s = 3\n")
    machine.cluster.pause("slurmctld")
    try:
        done = machine.watchdog()
    finally:
        machine.cluster.resume("slurmctld")
        machine.config.write_text(settings)

    assert (done.returncode, "slurm_unavailable" in done.stderr) == (1, True)
    assert machine.watchdog().returncode == 0
    machine.completes(job)


def test_doctor_reports_what_is_right_and_what_is_wrong(machine: Machine) -> None:
    done = machine.run("controller.cli.app", "doctor", "--json", "--config", str(machine.config))

    found = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    sound = (
        "slurm-programs",
        "slurmctld",
        "job-submit-plugins",
        "job-submit-lua",
        "hooks",
        "batch-sched-delay",
        "slurm-conf",
    )
    for check in sound:
        assert found[check]["level"] == "ok", found[check]
    assert found["partitions"]["what"] == "partition dl: 16 GPUs on 2 nodes"
    assert (found["wake-pipe"]["level"], found["controller"]["level"]) == ("ok", "ok")
    assert (found["state-dir"]["level"], found["policy"]["level"]) == ("error", "warning")
    assert (found["controller-user"]["level"], done.returncode) == ("error", 1)


def test_doctor_finds_a_line_that_slurmctld_has_not_loaded(machine: Machine) -> None:
    conf = machine.cluster.slurm_conf
    before = conf.read_text()
    conf.write_text(before.replace("JobSubmitPlugins=lua", "JobSubmitPlugins=lua,defaults"))
    try:
        done = machine.run("controller.cli.app", "doctor", "--json", "--config", str(machine.config))
    finally:
        conf.write_text(before)

    (found,) = [each for each in json.loads(done.stdout)["findings"] if each["check"] == "slurm-conf"]
    assert found["level"] == "warning"
    assert "JobSubmitPlugins=lua,defaults, but slurmctld runs with JobSubmitPlugins=lua" in found["what"]
