"""Jobs that can be stopped and started again, on a real Slurm with Headway, and their own records of each run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from slurm.demo.run import jobpython
from slurm.processes import ProcessRef, all_pids
from tests.cluster.agents.training import Training, training
from tests.returning.job import Records, script

STEPS = 240
PAUSE_S = 0.2
"""Length of a step, so that the commands of a test after the first steps come long before the last one, three quarters of a
minute later."""
STARTS_S = 180.0
"""Longest time for Slurm, python, torch and ten steps on a busy machine, where torch alone has taken a minute."""


Losses = Callable[[], dict[int, float]]
"""Loss by step of a job that was left alone, once it has ended."""


class Returning(Training):
    """Jobs by name, on a cluster with agents."""

    def begin(
        self,
        name: str,
        *options: str,
        steps: int = STEPS,
        pause_s: float = PAUSE_S,
        before: str = "",
        srun: str = "srun",
        **environment: str,
    ) -> str:
        """Submit a job. Return its id."""
        text = script(name, steps=steps, pause_s=pause_s, before=before, srun=srun)
        return self.submit(text, *options, **environment)

    def begin_whole(self, steps: int) -> Losses:
        """Submit a job that is left alone. Return a function that waits for its end and returns loss by step."""
        job = self.begin("whole", steps=steps, pause_s=0.0)

        @cache
        def losses() -> dict[int, float]:
            self.until_state(job, "COMPLETED", timeout_s=STARTS_S)
            found = dict(self.losses("whole"))
            assert sorted(found) == list(range(steps))
            return found

        return losses

    @property
    def records(self) -> Records:
        """Files that jobs have written."""
        return Records(self.cluster.files.work)

    def losses(self, name: str) -> list[tuple[int, float]]:
        """Return step and loss of each step, over all runs of a job."""
        return self.records.losses(name)

    def began(self, name: str) -> list[int]:
        """Return the first step of each run."""
        return self.records.began(name)

    def saved_steps(self, name: str) -> list[int]:
        """Return the steps that have a complete checkpoint."""
        return self.records.saved_steps(name)

    def hurry(self, name: str) -> None:
        """Let a job make its remaining steps without a pause, after the last action of a test on it."""
        self.records.hurry(name)

    def requeue(self, job_id: str) -> None:
        """Requeue a job as an operator would, and wait until it is in the queue.

        Headway places it again; a job that it does not schedule waits two minutes.
        """
        self.cluster.run("scontrol", "requeue", job_id)
        self.until_state(job_id, "PENDING")

    def start_now(self, job_id: str) -> None:
        """Let a requeued job that Headway does not schedule start.

        Slurm would fail it for good in the second in which its run before ended: slurmd refuses to launch it then ("credential
        revoked").
        """
        self.until(lambda: time.time() >= self.show_submit_s(job_id) + 1, "the second of its requeue has passed")
        self.cluster.run("scontrol", "update", f"jobid={job_id}", "StartTime=now")

    def clear(self) -> None:
        """Cancel everything, and wait for an idle cluster, every node of it with a connected agent.

        An agent whose controller has been killed several times in a row tries again after up to half a minute; until then
        Headway refuses to preempt the jobs of its node.
        """
        super().clear()
        nodes = len(self.cluster.node_names)
        self.until(
            lambda: self.headway.ask("status")["agents"]["connected"] == nodes, "all agents are connected", STARTS_S
        )

    def until_trains(self, name: str, steps: int = 10) -> None:
        """Wait until the job has made so many steps."""
        self.until(lambda: len(self.losses(name)) >= steps, f"{steps} steps of {name}", STARTS_S)

    def until_began(self, name: str, runs: int) -> None:
        """Wait until the job has begun so many times."""
        self.until(lambda: len(self.began(name)) >= runs, f"run {runs} of {name}", STARTS_S)

    def preemptions(self, job_id: str) -> list[dict[str, Any]]:
        """Return all preemptions of a job."""
        return [row for row in self.headway.ask("preemptions")["preemptions"] if row["job_id"] == job_id]

    def preemption(self, job_id: str) -> dict[str, Any]:
        """Return the newest preemption of a job; empty when there was none."""
        return max(self.preemptions(job_id), key=lambda row: int(row["number"]), default={})

    def everything(self) -> str:
        """Return queue, logs, and the steps that each job has made, for the report of a failed test."""
        names = sorted(path.stem for path in self.cluster.files.work.glob("*.losses"))
        steps = [f"{name} has made {len(self.losses(name))} steps" for name in names]
        return "\n".join((super().everything(), *steps))

    def until_stage(self, job_id: str, *stages: str, timeout_s: float = STARTS_S) -> dict[str, Any]:
        """Wait until the newest preemption of the job is in one of these stages. Return its row."""

        def there() -> dict[str, Any]:
            row = self.preemption(job_id)
            return row if row.get("stage") in stages else {}

        return dict(self.until(there, f"preemption of {job_id}: {stages}", timeout_s))

    def rank_on(self, node: str, name: str) -> ProcessRef:
        """Return the process of a job that trains on that node."""
        host = _host_of(self.cluster.slurmd_pid(node))

        def found() -> ProcessRef | None:
            for pid in all_pids():
                with suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
                    if words[1:3] == ["returning_job.py", name] and _host_of(pid) == host:
                        return ProcessRef.of(pid)
            return None

        return cast("ProcessRef", self.until(found, f"a rank of {name} on {node}"))

    @contextmanager
    def crashed(self, node: str) -> Iterator[None]:
        """Crash a node; boot it at the end of the context."""
        name = f"nodename={node}"
        self.cluster.crash_node(node)
        try:
            yield
        finally:
            self.cluster.run("scontrol", "update", name, "state=drain", "reason=test")
            self.cluster.boot_node(node)
            jobpython.open_to_users(self.cluster, [node])
            self.headway.agents.start_all(self.cluster, [node])
            self.cluster.run("scontrol", "update", name, "state=resume")

    @contextmanager
    def no_room(self) -> Iterator[None]:
        """Drain all nodes, so that no job starts; resume them at the end of the context."""
        names = f"nodename={','.join(self.cluster.node_names)}"
        self.cluster.run("scontrol", "update", names, "state=drain", "reason=test")
        try:
            yield
        finally:
            self.cluster.run("scontrol", "update", names, "state=resume")

    def check_losses(self, name: str, whole: dict[int, float]) -> None:
        """Check that every step was made, each time with the loss of a job that was left alone."""
        found = self.losses(name)
        assert {step for step, _ in found} == set(whole)
        for step, loss in found:
            assert loss == pytest.approx(whole[step], abs=1e-6), step


def _host_of(pid: int) -> str:
    """Return an id of the host of a process: every node of a mini-cluster has a UTS namespace of its own."""
    return str(Path(f"/proc/{pid}/ns/uts").readlink())


@contextmanager
def returning(rate: str = "1gbit", **settings: Any) -> Iterator[Returning]:
    """Four nodes with four GPUs and an agent each."""
    with training(rate, **settings) as found:
        jobs = Returning(found.cluster, found.headway)
        jobs.records.prepare()
        yield jobs
