"""Two machines with slurmctld and a controller each: one after the other is killed, and no job is lost or runs twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.base.lease import is_stale, read_lease
from slurm.minicluster.cluster import MiniCluster
from slurm.minicluster.spec import ClusterSpec
from slurm.testbed.agents import AGENTS_PORT, NodeAgents
from slurm.testbed.installation import Installation
from slurm.testbed.layout import HOOKS, LUA, keys_for_agents
from slurm.testbed.programs import own_environment, program, write_toml
from tests.cluster.conftest import skip_unless_possible, unique_name

pytestmark = pytest.mark.slow

TAKEOVER_S = 120.0
"""A backup slurmctld waits for SlurmctldTimeout; then it reads its state, and nodes have to register."""
SAVED_S = 12.0
"""slurmctld writes changes to its disk within some seconds; a killed one loses the others, with and without Headway."""
USER = "daemon"
HOOKS_OF_BACKUP = "hooks-backup"
"""Folder of the hooks of the second machine, in that of the cluster."""
SERVICES = {
    "policy": ("headway-policy", "serve"),
    "controller": ("headway-controller", "run"),
    "watchdog": ("headway-controller", "watchdog"),
}


@dataclass
class Machine:
    """A host with slurmctld and Headway's services, and folders of its own."""

    cluster: MiniCluster
    host: str
    address: str
    headway: Installation
    slurm_conf: Path

    def configure(self) -> None:
        settings = self.headway.controller_settings(("dl",), metrics_address="")
        settings |= keys_for_agents(self.cluster, f"{self.address}:{AGENTS_PORT}")
        settings |= {"slurm_conf": str(self.slurm_conf), "stand_by": True, "stale_after_s": 5}
        write_toml(self.headway.config, settings)

    @property
    def environment(self) -> Mapping[str, str]:
        return {**own_environment(), "SLURM_CONF": str(self.slurm_conf)}

    def start_slurmctld(self) -> None:
        log = self.cluster.files.log / f"slurmctld.{self.host}.log"
        argv = ("slurmctld", "-D", "-f", str(self.slurm_conf), "-L", str(log))
        self.cluster.start_on(self.host, *argv, log=self.headway.log_path("slurmctld"), env=self.environment)

    def start_headway(self) -> None:
        config = ("--config", str(self.headway.config))
        options = {
            "policy": ("--policy", "srtf", "--listen", self.headway.policy_address),
            "controller": config,
            "watchdog": (*config, "--every", "1"),
        }
        for name, (file, command) in SERVICES.items():
            argv = (*program(file), command, *options[name])
            self.cluster.start_on(self.host, *argv, log=self.headway.log_path(name), env=self.environment)

    def kill(self) -> None:
        """SIGKILL everything of slurmctld and Headway at once, as when the machine loses its power."""
        found = [self.cluster.program_on(self.host, "slurmctld")]
        found += [self.cluster.program_on(self.host, *words) for words in SERVICES.values()]
        for ref in found:
            if ref is not None:
                ref.send(signal.SIGKILL)

    @property
    def works(self) -> bool:
        return not is_stale(read_lease(self.headway.lease), time.time())

    @property
    def stands_by(self) -> bool:
        return (self.headway.runtime_dir / "standby").exists()


@dataclass
class Site:
    cluster: MiniCluster
    primary: Machine
    backup: Machine

    def sbatch(self, *options: str, seconds: float) -> str:
        wrap = f"echo begins >>job.$SLURM_JOB_ID; sleep {seconds}; echo ends >>job.$SLURM_JOB_ID"
        return self.cluster.run(
            "sbatch", "--parsable", "-o", "/dev/null", "--gres=gpu:8", *options, "--wrap", wrap, user=USER, timeout=120
        ).stdout.strip()

    def state(self, job: str) -> str:
        done = self.cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T", check=False, timeout=120)
        return done.stdout.strip()

    def held(self) -> list[str]:
        words = self.cluster.run("squeue", "-h", "-t", "PD", "-o", "%i %Q", timeout=120).stdout.split()
        return [job for job, priority in zip(words[::2], words[1::2], strict=True) if priority == "0"]

    def lines(self, job: str) -> list[str]:
        path = self.cluster.files.work / f"job.{job}"
        return path.read_text().split() if path.exists() else []

    def until(self, condition: Callable[[], object], what: str, timeout_s: float = TAKEOVER_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                logs = [f"--- {machine.host}\n{machine.headway.log('controller')[-2500:]}" for machine in self.machines]
                queue = self.cluster.run("squeue", check=False, timeout=120).stdout
                raise AssertionError(f"not within {timeout_s:g} s: {what}\n{queue}\n" + "\n".join(logs))
            time.sleep(0.2)

    @property
    def machines(self) -> tuple[Machine, Machine]:
        return self.primary, self.backup


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    skip_unless_possible()
    with Installation.prepare("one", with_agents=True) as one, Installation.prepare("two") as two:
        hooks = {f"{HOOKS_OF_BACKUP}/{name}": text for name, text in two.scripts().items()}
        spec = one.with_hooks(
            ClusterSpec(name=unique_name(), nodes=3, backup="n3", extra_conf=("SlurmctldTimeout=8",), added_files=hooks)
        )
        with MiniCluster(spec) as cluster:
            yield from booted(cluster, one, two)


def booted(cluster: MiniCluster, one: Installation, two: Installation) -> Iterator[Site]:
    addresses = {host: cluster.run_on(host, "hostname", "-i").stdout.split()[0] for host in ("ctl", "n3")}
    machines = (
        Machine(cluster, "ctl", addresses["ctl"], one, cluster.slurm_conf),
        Machine(cluster, "n3", addresses["n3"], two, configuration_of_its_own(cluster, two)),
    )
    site = Site(cluster, *machines)
    for folder in (one.folder, two.folder):
        shutil.chown(folder, "root")
    agents = NodeAgents(
        one.agents_folder, one.job_socket,
        {"controller_address": [f"{machine.address}:{AGENTS_PORT}" for machine in machines]},
    )  # fmt: skip
    for machine in machines:
        machine.configure()
    site.backup.start_slurmctld()
    for machine in machines:
        machine.start_headway()
    agents.start_all(cluster)
    yield site


def configuration_of_its_own(cluster: MiniCluster, two: Installation) -> Path:
    """Write the configuration folder of the second machine: the same text, with the paths of its own installation."""
    folder = cluster.files.etc.with_name("etc-backup")
    shutil.copytree(cluster.files.etc, folder)
    (folder / LUA).write_text(two.scripts()[LUA])
    conf = folder / "slurm.conf"
    text = conf.read_text().replace(f"/{HOOKS}/event.sh", f"/{HOOKS_OF_BACKUP}/event.sh")
    conf.write_text(text.replace("/slurmctld.pid", "/slurmctld-backup.pid"))
    return conf


def headway(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program("headway"), *words, "--config", str(machine.headway.config)],
        capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **machine.environment},
    )  # fmt: skip


def connected(machine: Machine) -> int:
    done = headway(machine, "status", "--json")
    return int(json.loads(done.stdout)["agents"]["connected"]) if done.returncode == 0 else 0


def test_each_machine_is_killed_in_turn(site: Site) -> None:
    primary, backup = site.machines

    # given a cluster whose primary works, and whose backup stands by
    site.until(lambda: primary.works, "the primary's controller works")
    site.until(lambda: backup.stands_by, "the backup's controller stands by")
    assert not backup.works
    assert "stands by, because the slurmctld of ctl is active" in headway(backup, "status").stderr
    running = [site.sbatch(seconds=60) for _ in range(3)]
    site.until(lambda: all(site.state(job) == "RUNNING" for job in running), "three jobs run")
    waiting = [site.sbatch(seconds=1) for _ in range(3)]
    site.until(lambda: sorted(site.held()) == sorted(waiting), "three jobs are held")

    # when the primary is killed
    time.sleep(SAVED_S)
    primary.kill()

    # then the backup takes over with everything that is held, and jobs that are submitted there are held too
    site.until(lambda: backup.works, "the backup's controller works")
    assert not backup.stands_by
    later = site.sbatch(seconds=1)
    assert sorted(site.held()) == sorted([*waiting, later])
    site.until(lambda: connected(backup) == 3, "agents call the backup's controller")
    site.until(lambda: all(site.state(job) == "COMPLETED" for job in running), "jobs that ran before end", 180)
    site.until(lambda: all(site.state(job) == "COMPLETED" for job in (*waiting, later)), "held jobs run", 180)

    # when the primary is back, its slurmctld becomes active again, and its controller works again
    running = [site.sbatch(seconds=40) for _ in range(3)]
    site.until(lambda: all(site.state(job) == "RUNNING" for job in running), "three jobs run again")
    waiting = [site.sbatch(seconds=1) for _ in range(3)]
    site.until(lambda: sorted(site.held()) == sorted(waiting), "three jobs are held again")
    primary.start_slurmctld()
    primary.start_headway()
    site.until(lambda: primary.works, "the primary's controller works again")
    ended = "this controller ends"
    site.until(lambda: ended in backup.headway.log("controller"), "the backup's controller ends")
    backup.start_headway()  # as systemd does
    site.until(lambda: backup.stands_by, "the backup's controller stands by again")

    # when the backup is killed, nothing changes
    time.sleep(SAVED_S)
    backup.kill()
    site.until(lambda: all(site.state(job) == "COMPLETED" for job in (*running, *waiting)), "all jobs run", 180)
    assert primary.works

    # no job ran twice, and each ended
    assert {tuple(site.lines(job)) for job in (*running, *waiting, later)} == {("begins", "ends")}
