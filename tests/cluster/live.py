"""A real Slurm with a real Headway, and short methods for tests on them."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from controller.base.lease import read_lease, write_lease
from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation
from tests.cluster.conftest import skip_unless_possible, unique_name

USER = "daemon"
"""A plain user who exists on every Debian."""
COMES_S = 60.0
"""Longest time for a condition on a busy machine, well below the two minutes after which Slurm starts a requeued job by itself."""
ENDED_BADLY = frozenset(["FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"])
"""States that a job does not leave."""
LEASE_LASTS_S = 300.0
STALE_AFTER_S = 60.0
"""Age at which a lease is stale. A controller that is late for longer than that loses the jobs submitted meanwhile to Slurm alone;
it must be away before `shorten_lease` or `expire_lease`, so no test waits for so long."""
ANSWERS_S = 30.0
"""Longest time for a decision of the policy. The half second of a real installation is over too soon on a busy machine: then the
fallback decides, which does not know racks or single GPUs, and preempts no job."""
PAUSE_MOST_S = 0.5
"""Longest pause between two looks at a condition. No test may need a state that lasts for less."""
NO_ESTIMATES = {"start_estimates_every_s": 0.0}
"""Settings of a controller without the process that estimates when jobs will start, for tests of something else."""
_SHARE = re.compile(r"Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
_ADMIN_COMMENT = re.compile(r" AdminComment=(.*?)(?=\s+\w+=|\s*$)", re.MULTILINE)
_COUNT = re.compile(r"gpu:[^:(,]+:(\d+)\(")


@dataclass
class Live:
    """One cluster with one installation."""

    cluster: MiniCluster
    headway: Installation

    def sbatch(self, *options: str, seconds: float = 1.0, user: str | None = USER) -> str:
        """Submit a job that sleeps. Return its id."""
        done = self.cluster.run(
            "sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap=sleep {seconds}", user=user
        )
        return done.stdout.strip()

    def open_job(self, *options: str, user: str | None = USER) -> str:
        """Submit a job that runs until `end` is called for it. Return its id. Tasks of an array end together."""
        mine = "end.${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}"
        wrap = f'--wrap=touch "begun.$SLURM_JOB_ID"; until [ -e "{mine}" ]; do sleep 0.1; done'
        done = self.cluster.run("sbatch", "--parsable", "--output=/dev/null", *options, wrap, user=user)
        return done.stdout.strip()

    def until_begun(self, job_id: str) -> None:
        """Wait until the script of an open job runs: Slurm reports RUNNING before the node has started it."""
        self.until((self.cluster.files.work / f"begun.{job_id}").exists, f"{job_id} begins")

    def end(self, job_id: str) -> None:
        """Let an open job run to its end, in this run and in later ones."""
        (self.cluster.files.work / f"end.{job_id}").touch()

    def renew_lease(self) -> None:
        """Write the lease as by a controller that has just ended; it stays fresh until `expire_lease`.

        So the test does not depend on the time that its commands take on a busy machine.
        """
        self._write_lease(time.time(), LEASE_LASTS_S)

    def shorten_lease(self, stale_after_s: float) -> None:
        """Let the lease of a controller that is away become stale at that age."""
        path = self.headway.runtime_dir / "lease"
        before = read_lease(path)
        assert before is not None, "no controller has written a lease"
        if before.stale_after_s != stale_after_s:
            write_lease(path, replace(before, stale_after_s=stale_after_s))

    def expire_lease(self) -> None:
        """Write a lease that every reader calls stale."""
        self._write_lease(time.time() - 2 * LEASE_LASTS_S, LEASE_LASTS_S)

    def _write_lease(self, time_s: float, stale_after_s: float) -> None:
        path = self.headway.runtime_dir / "lease"
        before = read_lease(path)
        assert before is not None, "no controller has written a lease"
        write_lease(path, replace(before, time_s=int(time_s), stale_after_s=stale_after_s))

    def refused(self, *argv: str, user: str | None = USER) -> str:
        """Run a command that must fail. Return its output."""
        done = self.cluster.run(*argv, user=user, check=False)
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def show(self, job_id: str) -> dict[str, str]:
        """Return the record of a job, by key. Of values with spaces only the admin comment is whole."""
        text = self.cluster.run("scontrol", "-o", "-d", "show", "job", job_id, check=False).stdout
        shown = dict(word.split("=", 1) for word in text.split() if "=" in word)
        comment = _ADMIN_COMMENT.search(text)
        return shown | ({"AdminComment": comment[1]} if comment else {})

    def state(self, job_id: str) -> str:
        """Return the state of a job as Slurm names it; empty when Slurm does not know the job."""
        return self.show(job_id).get("JobState", "")

    def show_submit_s(self, job_id: str) -> float:
        """Return the submit time of a job, in whole seconds since the Unix epoch."""
        return time.mktime(time.strptime(self.show(job_id)["SubmitTime"], "%Y-%m-%dT%H:%M:%S"))

    def nodes(self, job_id: str) -> dict[str, int]:
        """Return node → number of GPUs that Slurm gave the job."""
        text = self.cluster.run("scontrol", "-o", "-d", "show", "job", job_id).stdout
        return {
            node: sum(int(count) for count in _COUNT.findall(gres))
            for names, gres in _SHARE.findall(text)
            for node in self.expand(names)
        }

    def expand(self, names: str) -> list[str]:
        """Return the nodes of a host list: n1, n2, n4 for n[1-2,4]."""
        return self.cluster.run("scontrol", "show", "hostnames", names).stdout.split()

    def until(self, condition: Callable[[], Any], what: str = "", timeout_s: float = COMES_S) -> Any:
        """Wait until `condition()` is true. Return its value.

        The pauses grow: most conditions start a program, which the tests that run beside this one would have to wait for.
        """
        deadline = time.monotonic() + timeout_s
        pause_s = 0.1
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout_s:g} s: {what}\n{self.everything()}")
            time.sleep(pause_s)
            pause_s = min(1.2 * pause_s, PAUSE_MOST_S)
        return found

    def until_state(self, job_id: str, *states: str, timeout_s: float = COMES_S) -> str:
        """Wait until the job is in one of these states. Return the state. A job that has ended badly is not waited for."""

        def there() -> str:
            state = self.state(job_id)
            if state in ENDED_BADLY and state not in states:
                raise AssertionError(
                    f"{job_id} is {state}, and never {states}\n{self.show(job_id)}\n{self.everything()}"
                )
            return state if state in states else ""

        found: str = self.until(there, f"{job_id} {states}", timeout_s)
        return found

    def until_known(self, job_id: str) -> None:
        """Wait until the controller has seen the job."""
        self.until(lambda: self.headway.try_ask("why", job_id) is not None, f"{job_id} is known")

    def until_seen_running(self, job_id: str) -> None:
        """Wait until the controller has seen that the job runs."""

        def runs() -> bool:
            said = self.headway.try_ask("why", job_id)
            return said is not None and said["state"] == "running"

        self.until(runs, f"{job_id} is known to run")

    def everything(self) -> str:
        """Return queue and logs for the report of a failed test."""
        queue = self.cluster.run("squeue", "-r", "-o", "%i %T %r %N %R", check=False).stdout
        known = json.dumps(self.headway.try_ask("queue"), indent=1)
        return f"{queue[-2000:]}\n{known[-4000:]}\n{self.headway.log('controller')[-3000:]}\n{self.headway.log('policy')[-1000:]}"

    def cancel_all(self) -> None:
        """Cancel everything, and wait for an empty queue."""
        self.cluster.run("scancel", "--state=PENDING", "--user=daemon", check=False)
        self.cluster.run("scancel", "--user=daemon", check=False)
        self.cluster.run("scancel", "--user=root", check=False)
        self.until(lambda: not self.cluster.run("squeue", "--noheader", check=False).stdout.strip(), "an empty queue")

    def clear(self) -> None:
        """Cancel everything, and wait for an idle cluster."""
        self.cancel_all()
        self.cluster.wait_idle(COMES_S)


@contextmanager
def live(*, policy: str | None = "fifo-skip", controller: bool = True, **settings: Any) -> Iterator[Live]:
    """Boot a cluster with Headway on it."""
    spec = settings.pop("spec", {})
    skip_unless_possible(accounting=spec.get("accounting", False))
    name = unique_name()
    with Installation.prepare(name) as headway, MiniCluster(headway.cluster_spec(name=name, **spec)) as cluster:
        usual = {
            "stale_after_s": STALE_AFTER_S,
            "heartbeat_interval_s": 0.5,
            "log_level": "debug",
            "policy_deadline_s": ANSWERS_S,
        }
        headway.configure(cluster, **(usual | NO_ESTIMATES | settings))
        if policy:
            headway.start_policy(policy)
        if controller:
            headway.start_controller()
        try:
            yield Live(cluster, headway)
        finally:  # before the cluster goes: a Slurm command without a slurm.conf tries again for a minute
            for process in reversed(list(headway.processes)):
                headway.stop(process)


def run(*argv: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command. Return its status and output."""
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, **more)
