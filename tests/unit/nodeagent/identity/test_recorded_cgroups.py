"""The cgroups of a node as real slurmds of 24.11 and 26.05 make them (v2): 24.11 names jobs by number, 26.05 by SLUID."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from nodeagent.identity.cgroup import JobCgroups
from nodeagent.identity.peer import Identifier, Peer
from nodeagent.identity.procfs import ProcFiles
from nodeagent.identity.stepd import SLUID
from tests.unit.controller.slurm.scontrol.recorded_texts import OF_RELEASES, jobs
from tests.unit.nodeagent.identity.trees import plant, process

RELEASES = ["24.11.5", "26.05.5"]
every_release = pytest.mark.parametrize("release", RELEASES)
UID = 1000


class RecordedNode:
    """Node n1 of a recording: its cgroups, and the processes in them."""

    def __init__(self, root: Path, release: str) -> None:
        self._texts = OF_RELEASES[release]
        self.proc, self.cgroup = root / "proc", root / "cgroup"
        self.folders = {line.partition("\t")[0]: line.partition("\t")[2] for line in self._lines("cgroup-tree.txt")}
        procs = {f"{folder}/cgroup.procs": pids.replace(" ", "\n") for folder, pids in self.folders.items()}
        plant(self.cgroup, procs | {"cgroup.controllers": ""})
        for line in self._lines("processes.txt"):
            self._plant_process(root, *line.split("\t"))

    def jobs(self) -> JobCgroups:
        return JobCgroups(ProcFiles(self.proc), self.cgroup)

    def pid_below(self, step: str) -> int:
        """Return a process of the step, no slurmstepd."""
        return next(int(pids.split()[0]) for name, pids in self.folders.items() if f"{step}/user/" in name and pids)

    def _lines(self, file: str) -> list[str]:
        return (self._texts / file).read_text().splitlines()

    def _plant_process(self, root: Path, pid: str, cgroup: str, title: str, program: str) -> None:
        plant(self.proc, process(int(pid), cgroup))
        folder = self.proc / pid
        if "slurm" not in program:
            return  # a process of a user
        (folder / "status").write_text("Name:\tx\nUid:\t0\t0\t0\t0\n")
        (folder / "cmdline").write_text(title)
        executed = root / "bin" / Path(program).name
        executed.parent.mkdir(exist_ok=True)
        executed.touch(0o755)
        (folder / "exe").symlink_to(executed)
        plant(folder, {"fd/": "", "net/unix": (self._texts / "net-unix.txt").read_text()})


@pytest.fixture
def node(tmp_path: Path, release: str) -> RecordedNode:
    return RecordedNode(tmp_path, release)


def running_on_n1(release: str) -> set[int | None]:
    read = jobs(OF_RELEASES[release], "show-job-detail.txt").values()
    return {job.raw_id for job in read if any(share.node == "n1" for share in job.allocated)}


@every_release
def test_the_jobs_are_those_that_slurm_shows_on_the_node(node: RecordedNode, release: str) -> None:
    assert node.jobs().jobs().keys() == running_on_n1(release)


@every_release
def test_steps_have_their_processes(node: RecordedNode, release: str) -> None:
    cgroups = node.jobs()
    steps = {step.step_id: step for step in cgroups.steps(cgroups.jobs()[1])}
    assert steps.keys() == {"0", "batch"}
    assert all(len(step.daemons) == 1 and len(step.pids) > 1 for step in steps.values())


@every_release
def test_a_process_is_in_its_job_and_step(node: RecordedNode, release: str) -> None:
    pidfd = os.pidfd_open(os.getpid())
    try:
        peer = Peer(node.pid_below("step_0"), UID, UID)
        found = Identifier(ProcFiles(node.proc), cgroup_root=node.cgroup).identify(peer, pidfd)
    finally:
        os.close(pidfd)
    assert (found.job_id, found.step_id) == (1, "0")


def test_26_05_names_them_by_sluid() -> None:
    text = (OF_RELEASES["26.05.5"] / "cgroup-tree.txt").read_text()
    sluids = set(re.findall(rf"slurmstepd.scope/({SLUID})\t", text))
    shown = re.findall(rf"SLUID=({SLUID})", (OF_RELEASES["26.05.5"] / "show-job-detail.txt").read_text())
    assert sluids and sluids < set(shown)
