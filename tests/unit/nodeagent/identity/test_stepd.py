"""Cgroups of Slurm 26.05, which are named by SLUID: the job's number comes from the slurmstepd of a step."""

import os
from pathlib import Path

import pytest

from nodeagent.errors import IdentityError
from nodeagent.identity.cgroup import JobCgroups
from nodeagent.identity.peer import Identifier, Peer
from nodeagent.identity.procfs import ProcFiles
from nodeagent.identity.stepd import SluidJobs
from tests.unit.nodeagent.identity.trees import plant, process

SCOPE = "system.slice/slurmstepd.scope"
JOB = f"{SCOPE}/sEKNKTV3WPV500"
OTHER = "system.slice/n2_slurmstepd.scope/s9P5M838DTDX00"
# The tree of Slurm's documentation (cgroup_v2.html), with the SLUID in the place of job_3385.
TREE = {
    "cgroup.controllers": "cpu memory",
    f"{SCOPE}/system/cgroup.procs": "30",
    f"{JOB}/cpu.stat": "usage_usec 1500000",
    f"{JOB}/memory.current": 7_000,
    f"{JOB}/memory.stat": "inactive_file 3000",
    f"{JOB}/step_extern/slurm/cgroup.procs": "58",
    f"{JOB}/step_extern/user/task_special/cgroup.procs": "",
    f"{JOB}/step_0/slurm/cgroup.procs": "59",
    f"{JOB}/step_0/user/task_0/cgroup.procs": "60",
    f"{OTHER}/step_batch/slurm/cgroup.procs": "70",
}


class Machine:
    """A node with the tree above. `stepds`: socket of each slurmstepd, by pid; the titles are cut off, as on Debian."""

    def __init__(self, root: Path, stepds: dict[int, str]) -> None:
        self.root = root
        self.proc = root / "proc"
        self.cgroup = plant(root / "cgroup", TREE)
        plant(self.proc, process(60, f"0::/{JOB}/step_0/user/task_0"))
        for pid, socket in stepds.items():
            self.add_stepd(pid, socket)

    def add_stepd(
        self, pid: int, socket: str, *, uids: str = "0 0 0", program: str = "slurmstepd", mode: int = 0o755
    ) -> None:
        plant(self.proc, process(pid))
        folder = self.proc / str(pid)
        (folder / "status").write_text(f"Name:\tslurmstepd\nUid:\t{uids}\t0\n")
        (folder / "cmdline").write_bytes(b"slurmstepd: [1234\0")
        executed = plant(self.root, {f"sbin/{pid}/{program}": ""}) / f"sbin/{pid}/{program}"
        executed.chmod(mode)
        (folder / "exe").symlink_to(executed)
        (folder / "fd").mkdir()
        (folder / "fd" / "4").symlink_to(f"socket:[{pid}00]")
        (folder / "net").mkdir()
        (folder / "net" / "unix").write_text(
            f"Num RefCount\n0000: 00000002 00000000 00010000 0001 01 {pid}00 {socket}\n"
        )

    def jobs(self) -> JobCgroups:
        return JobCgroups(ProcFiles(self.proc), self.cgroup)

    def identify(self) -> tuple[int, str]:
        pidfd = os.pidfd_open(os.getpid())
        try:
            found = Identifier(ProcFiles(self.proc), cgroup_root=self.cgroup).identify(Peer(60, 1000, 1000), pidfd)
        finally:
            os.close(pidfd)
        return found.job_id, found.step_id


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(
        tmp_path,
        {
            58: "/var/spool/slurmd/n1_123456.4294967292",
            59: "/var/spool/slurmd/n1_123456.0",
            70: "/var/spool/slurmd/n2_7.4294967291",
        },
    )


def test_jobs_have_the_numbers_of_their_slurmstepds(machine: Machine) -> None:
    cgroups = machine.jobs()
    found = cgroups.jobs()
    assert found == {123456: (("", f"/{JOB}"),), 7: (("", f"/{OTHER}"),)}
    assert [step.step_id for step in cgroups.steps(found[123456])] == ["0", "extern"]
    assert cgroups.usage(found[123456], ()).cpu_s == 1.5


def test_a_process_is_in_the_job_of_its_slurmstepd(machine: Machine) -> None:
    assert machine.identify() == (123456, "0")


def test_a_number_that_was_found_stays_known_when_the_step_has_ended(machine: Machine) -> None:
    jobs = SluidJobs(ProcFiles(machine.proc), machine.cgroup)
    assert jobs.job_of(f"/{JOB}") == 123456
    for pid in (58, 59):
        (machine.proc / str(pid) / "status").unlink()
    assert jobs.job_of(f"/{JOB}") == 123456
    assert SluidJobs(ProcFiles(machine.proc), machine.cgroup).job_of(f"/{JOB}") is None


def test_a_step_that_is_only_beginning_is_read_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    cgroups = machine.jobs()
    assert cgroups.jobs() == {}
    with pytest.raises(IdentityError, match="not in the cgroup of a Slurm job"):
        machine.identify()
    machine.add_stepd(58, "/var/spool/slurmd/n1_9.4294967292")
    assert list(cgroups.jobs()) == [9]


@pytest.mark.parametrize(
    "forgery",
    [
        {"uids": "1000 1000 1000"},
        {"uids": "1000 0 0"},  # a setuid program, by a link of that name
        {"uids": "1000 0 0", "mode": 0o4755},
        {"mode": 0o4755},  # a setuid program that has become root altogether, as sudo does
        {"program": "python"},
    ],
)
def test_another_program_in_that_folder_is_no_slurmstepd(tmp_path: Path, forgery: dict[str, object]) -> None:
    machine = Machine(tmp_path, {})
    machine.add_stepd(59, "/tmp/n1_666.0", **forgery)  # type: ignore[arg-type]
    assert machine.jobs().jobs() == {}


def test_a_slurmstepd_that_acts_as_its_user_for_a_moment_is_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    machine.add_stepd(59, "/var/spool/slurmd/n1_9.0", uids="0 1000 0")
    assert list(machine.jobs().jobs()) == [9]


@pytest.mark.parametrize("first", [True, False])
def test_a_name_that_looks_like_a_line_of_the_table_gives_no_job_another_number(tmp_path: Path, *, first: bool) -> None:
    """Names of sockets may contain line breaks, and /proc/net/unix prints them as they are."""
    machine = Machine(tmp_path, {})
    machine.add_stepd(59, "/var/spool/slurmd/n1_9.0")
    table = machine.proc / "59" / "net" / "unix"
    head, own = table.read_text().splitlines()
    forged = ["0001: 00000002 00000000 00010000 0001 01 7777 @name", own.replace("n1_9.0", "n1_666.0")]
    table.write_text("\n".join([head, *([*forged, own] if first else [own, *forged])]) + "\n")
    assert machine.jobs().jobs() == {}  # the two lines disagree

    asked = ProcFiles(machine.proc, lambda inodes: dict.fromkeys(inodes, "/var/spool/slurmd/n1_9.0"))
    assert list(JobCgroups(asked, machine.cgroup).jobs()) == [9]


@pytest.mark.parametrize("name", ["sEKNKTV3WPV50", "sEKNKTV3WPV5000", "sEKNKTV3WPV50U", "system", "seknktv3wpv500"])
def test_other_folders_are_no_jobs(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path, {58: "/var/spool/slurmd/n1_9.4294967292"})
    plant(machine.cgroup, {f"system.slice/n3_slurmstepd.scope/{name}/step_0/slurm/cgroup.procs": "58"})
    assert machine.jobs().jobs() == {9: (("", f"/{JOB}"),)}
