"""Cgroups of jobs: their processes, and their use of CPU and memory."""

import os
import resource

import pytest

from nodeagent.identity.cgroup import JobCgroups, StepProcesses
from nodeagent.identity.procfs import ProcFiles
from nodeagent.wire.report import JobUsage
from tests.unit.nodeagent.identity.trees import plant, process

V1 = "slurm_n1/uid_1000/job_7"
V2 = "system.slice/slurmstepd.scope/job_7"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def read(tmp_path):
    """read(files, processes) → JobCgroups over them."""

    def make(files, processes=()):
        proc = tmp_path / "proc"
        proc.mkdir()
        for each in processes:
            plant(proc, each)
        return JobCgroups(ProcFiles(proc), plant(tmp_path / "cgroup", files))

    return make


def usage(cgroups, folders):
    return cgroups.usage(folders, [pid for step in cgroups.steps(folders) for pid in step.pids])


def test_v1_with_accounting(read):
    cgroups = read(
        {
            f"freezer/{V1}/step_batch/cgroup.procs": "40\n41",
            f"freezer/{V1}/step_0/cgroup.procs": "50",
            f"freezer/{V1}/cgroup.procs": "",
            f"cpuacct/{V1}/cpuacct.usage": 2_500_000_000,
            f"memory/{V1}/memory.usage_in_bytes": 5_000_000,
            f"memory/{V1}/memory.stat": "cache 9\ntotal_inactive_file 1000000",
            "freezer/system.slice/cgroup.procs": "1",
        }
    )
    [(job_id, folders)] = cgroups.jobs().items()
    assert job_id == 7
    assert {controller for controller, _path in folders} == {"freezer", "cpuacct", "memory"}
    assert usage(cgroups, folders) == JobUsage(2.5, 4_000_000, "cgroup")
    assert cgroups.steps(folders) == (StepProcesses("0", (50,)), StepProcesses("batch", (40, 41)))


def test_v1_where_one_hierarchy_has_two_names(read, tmp_path):
    cgroups = read({f"cpu,cpuacct/{V1}/cpuacct.usage": 10**9})
    for name in ("cpu", "cpuacct"):
        (tmp_path / "cgroup" / name).symlink_to("cpu,cpuacct")
    folders = cgroups.jobs()[7]
    assert len(folders) == 2
    assert usage(cgroups, folders).cpu_s == 1.0


def test_v1_without_accounting_adds_up_the_processes(read):
    """On a cluster whose TaskPlugin constrains devices only, proctrack's freezer is the only hierarchy."""
    cgroups = read(
        {f"freezer/{V1}/step_0/cgroup.procs": "50\n51\n52"},
        [process(50, ticks=3 * TICKS, pages=10), process(51, ticks=TICKS, pages=5)],  # 52 has just ended
    )
    assert usage(cgroups, cgroups.jobs()[7]) == JobUsage(4.0, 15 * PAGE, "processes")


def test_numbers_beyond_64_bits_are_no_measurement(read):
    files = {f"cpuacct/{V1}/cpuacct.usage": "9" * 400, f"cpuacct/{V1}/step_0/cgroup.procs": "50\n51"}
    cgroups = read(files, [process(50, ticks=10**400), process(51, ticks=TICKS, pages=5)])
    assert usage(cgroups, cgroups.jobs()[7]) == JobUsage(1.0, 5 * PAGE, "processes")


def test_v2(read):
    cgroups = read(
        {
            "cgroup.controllers": "cpu memory",
            f"{V2}/cpu.stat": "usage_usec 1500000\nuser_usec 1",
            f"{V2}/memory.current": 7_000,
            f"{V2}/memory.stat": "inactive_file 3000\nfile 9",
            f"{V2}/step_batch/user/task_0/cgroup.procs": "60",
            f"{V2}/step_batch/slurm/cgroup.procs": "59",
            "system.slice/n2_slurmstepd.scope/job_8/cpu.stat": "usage_usec 1",
            "user.slice/user-1.slice/slurmstepd.scope/job_9/cpu.stat": "usage_usec 1",
        }
    )
    assert cgroups.jobs() == {7: (("", f"/{V2}"),), 8: (("", "/system.slice/n2_slurmstepd.scope/job_8"),)}
    assert usage(cgroups, cgroups.jobs()[7]) == JobUsage(1.5, 4_000, "cgroup")
    [step] = cgroups.steps(cgroups.jobs()[7])
    assert (step.step_id, set(step.pids)) == ("batch", {59, 60})


def test_v2_without_the_memory_controller(read):
    cgroups = read(
        {
            "cgroup.controllers": "",
            f"{V2}/cpu.stat": "usage_usec 1500000",
            f"{V2}/step_0/user/task_0/cgroup.procs": "60",
        },
        [process(60, ticks=1, pages=3)],
    )
    assert usage(cgroups, cgroups.jobs()[7]) == JobUsage(1.5, 3 * PAGE, "cgroup")


def test_no_cgroups_at_all(read):
    cgroups = read({"freezer/": ""}, [process(70, ticks=TICKS, pages=1)])
    assert cgroups.jobs() == {}
    assert cgroups.steps(()) == ()
    assert cgroups.usage((), [70]) == JobUsage(1.0, PAGE, "processes")
    assert cgroups.usage((), [71]) == JobUsage(None, None, "processes")


def test_a_job_that_has_ended_meanwhile(read):
    cgroups = read({"freezer/": ""})
    gone = (("freezer", f"/{V1}"), ("cpuacct", f"/{V1}"))
    assert usage(cgroups, gone) == JobUsage(None, None, "processes")


def test_a_job_of_very_many_processes_is_not_added_up(read):
    cgroups = read({f"freezer/{V1}/step_0/cgroup.procs": "\n".join(str(pid) for pid in range(2, 3000))})
    assert usage(cgroups, cgroups.jobs()[7]) == JobUsage(None, None, "processes")


def test_the_real_machine():
    """Compare CPU and memory of this process with the kernel's own values."""
    usage = JobCgroups(ProcFiles()).usage((), [os.getpid()])
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    assert usage.cpu_s == pytest.approx(spent, abs=0.1)
    assert 0 < usage.memory_bytes <= own.ru_maxrss * 1024 * 1.01
