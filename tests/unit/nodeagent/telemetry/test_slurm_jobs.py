"""Jobs by kernel facts, their GPUs, and those GPUs that no process uses."""

import os
import shutil
import threading

import pytest

from nodeagent.identity.bounded_read import BoundedReader
from nodeagent.identity.cgroup import JobCgroups
from nodeagent.identity.peer import JobProcess
from nodeagent.identity.procfs import ProcFiles
from nodeagent.jobsocket.registry import JobRegistry
from nodeagent.telemetry.network import NicCounters
from nodeagent.telemetry.nvml import NoGpus
from nodeagent.telemetry.sampler import Sampler
from nodeagent.telemetry.slurm_jobs import SlurmJob, SlurmJobs, idle_gpus, step_gpus, with_jobs
from nodeagent.wire.report import GpuHealth, GpuProcess, GpuReading, MigReading, Usr1Report
from tests.unit.nodeagent.identity.trees import plant, process, stat
from tests.unit.nodeagent.jobsocket.test_registry import Node

S = 1_000_000_000


def gpu(index, processes=(), mig=()):
    nothing = dict.fromkeys(GpuReading.__dataclass_fields__)
    reported = None if processes is None else tuple(GpuProcess(pid, None) for pid in processes)
    return GpuReading(**nothing | {"index": index, "processes": reported, "mig": tuple(mig), "health": GpuHealth()})


def job(pids, gpus, job_id=7):
    return SlurmJob(job_id, 1000, 0, (), frozenset(pids), gpus)


class World:
    """A node with a freezer hierarchy, as proctrack/cgroup makes it on v1."""

    def __init__(self, root):
        self.root = root
        plant(root, {"proc/": "", "cgroup/freezer/": "", "sys/": ""})
        processes = ProcFiles(root / "proc")
        processes._bounded = BoundedReader(timeout_s=30.0)
        self.node = Node()
        cgroups = JobCgroups(processes, root / "cgroup")
        self.slurm_jobs = SlurmJobs(cgroups, processes)
        self.sampler = Sampler(self.node.jobs, cgroups, self.slurm_jobs, NoGpus(), NicCounters(root=root / "sys"))

    def start(self, job_id, pid, step="batch", environment=None, **reported):
        environment = {"SLURM_JOB_ID": str(job_id)} | reported | (environment or {})
        plant(self.root / "proc", process(pid, environment=environment))
        procs = self.root / f"cgroup/freezer/slurm/uid_1000/job_{job_id}/step_{step}/cgroup.procs"
        procs.parent.mkdir(parents=True, exist_ok=True)
        with procs.open("a") as file:
            file.write(f"{pid}\n")

    def end(self, job_id):
        for path in sorted(self.root.glob(f"cgroup/freezer/slurm/uid_1000/job_{job_id}/**/*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (self.root / f"cgroup/freezer/slurm/uid_1000/job_{job_id}").rmdir()

    def read(self):
        return self.slurm_jobs.read(self.node.jobs.processes())

    def measure(self, gpus=None):
        return self.sampler.sample(gpus, self.node.now_ns).jobs


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_job_that_says_nothing_is_seen(world):
    world.start(7, 50, SLURM_JOB_GPUS="0,2-3", SLURM_RESTART_COUNT="2")
    [found] = world.read().values()
    assert (found.job_id, found.uid, found.restart, found.gpus) == (7, 1000, 2, (0, 2, 3))
    assert found.pids == {50}


def test_the_effect_of_usr1_is_reported_for_jobs_in_cgroups(world):
    world.start(7, 50)
    plant(world.root / "proc", process(40, name="slurmstepd") | {"50/stat": stat(50, parent=40)})
    [row] = world.measure()
    assert row.usr1 == Usr1Report(0, 1)


def test_gpus_of_all_steps_come_together(world):
    """A step started by srun inherits the batch script's SLURM_JOB_GPUS, which may belong to another node: it is not used."""
    world.start(7, 60, "0", SLURM_JOB_GPUS="6,7", SLURM_STEP_GPUS="1")
    world.start(7, 61, "1", SLURM_JOB_GPUS="6,7", SLURM_STEP_GPUS="2")
    assert world.read()[7].gpus == (1, 2)


@pytest.mark.parametrize(
    ("reported", "found"),
    [
        ({}, None),
        ({"SLURM_JOB_GPUS": ""}, frozenset()),
        ({"SLURM_JOB_GPUS": "0-7"}, frozenset(range(8))),
        ({"SLURM_JOB_GPUS": "0-99999999999999"}, None),
        ({"SLURM_JOB_GPUS": "1,x"}, None),
        ({"SLURM_JOB_GPUS": "-3"}, None),
        ({"SLURM_JOB_GPUS": ",".join(["0-1000"] * 100_000)}, None),
    ],
    ids=range(7),
)
def test_what_a_user_may_have_written_there(reported, found):
    assert step_gpus("batch", reported) == found


def test_an_environment_of_another_job_is_not_used(world):
    world.start(7, 50, environment={"SLURM_JOB_ID": "8"}, SLURM_JOB_GPUS="0")
    world.start(7, 51, SLURM_JOB_GPUS="1", SLURM_RESTART_COUNT="9" * 30)
    [found] = world.read().values()
    assert (found.job_id, found.gpus, found.restart) == (7, (1,), 0)


def test_environments_are_read_once_and_of_few_processes(world, monkeypatch):
    reads = []
    real = ProcFiles.environment
    monkeypatch.setattr(ProcFiles, "environment", lambda self, pid: reads.append(pid) or real(self, pid))
    for pid in range(50, 90):
        world.start(7, pid, environment={"SLURM_JOB_ID": "none of ours"})
    assert [world.read().get(7) is not None for _ in range(5)] == [False, False, True, True, True]
    assert (world.read()[7].gpus, world.read()[7].uid) == (None, 1000)
    assert sorted(reads) == sorted([50, 51, 52, 53] * 3)
    world.start(8, 60)
    for _ in range(3):
        assert world.read()[8].uid == 1000
    assert reads.count(60) == 1


def test_in_one_turn_so_many_environments_are_read_and_the_others_in_the_next(world, monkeypatch):
    monkeypatch.setattr("nodeagent.telemetry.slurm_jobs._READS", 3)
    for pid in range(50, 58):
        world.start(pid, pid)
    assert [len(world.read()) for _ in range(4)] == [3, 6, 8, 8]


class WorldV2(World):
    """A node with cgroups of v2: the slurmstepd of each step is in a folder beside that of the tasks."""

    def __init__(self, root):
        super().__init__(root)
        plant(root, {"cgroup/cgroup.controllers": "cpu memory"})
        self.pid = 1000

    def replace_steps(self, job_id, steps, uid=1000):
        """Start these steps of a job, and end all others."""
        folder = self.root / f"cgroup/system.slice/slurmstepd.scope/job_{job_id}"
        shutil.rmtree(folder, ignore_errors=True)
        for step in steps:
            stepd, task = self.pid, self.pid + 1
            self.pid += 2
            plant(
                self.root / "proc",
                process(stepd, name="slurmstepd", environment={"PATH": "/"})
                | {f"{stepd}/status": "Uid:\t0\t0\t0\t0"}
                | process(task, environment={"SLURM_JOB_ID": str(job_id), "SLURM_STEP_GPUS": "0"})
                | {f"{task}/status": f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}"},
            )
            plant(folder, {f"step_{step}/slurm/cgroup.procs": stepd, f"step_{step}/user/task_0/cgroup.procs": task})


def test_a_job_with_many_short_steps_hides_no_job_that_starts(tmp_path, monkeypatch):
    world = WorldV2(tmp_path)
    monkeypatch.setattr("nodeagent.telemetry.slurm_jobs._READS", 12)
    for turn in range(1, 6):
        # given two jobs of which every step is another one in each turn, in folders that come first
        for flooding in (5, 6):
            world.replace_steps(flooding, range(turn * 20, turn * 20 + 20))
        # when another user's job begins
        if turn == 2:
            world.replace_steps(9, ["0"], uid=1001)
        # then it is reported at once, and for good
        found = world.read()
        assert sorted(found) == ([5, 6] if turn == 1 else [5, 6, 9])
        if turn > 1:
            assert (found[9].uid, found[9].gpus) == (1001, (0,))


def test_jobs_of_which_nothing_can_be_known_hide_no_job_that_starts(tmp_path, monkeypatch):
    world = WorldV2(tmp_path)
    monkeypatch.setattr("nodeagent.telemetry.slurm_jobs._READS", 8)
    real = ProcFiles.environment
    foreign = {"SLURM_JOB_ID": "none of ours"}
    monkeypatch.setattr(ProcFiles, "environment", lambda self, pid: foreign if hidden(pid) else real(self, pid))

    def hidden(pid):
        return (world.root / f"proc/{pid}/status").read_text().startswith("Uid:\t1000")

    for turn in range(1, 6):
        for flooding in (2, 3, 4, 5, 6):
            world.replace_steps(flooding, range(turn * 20, turn * 20 + 20))
        if turn == 3:
            world.replace_steps(9, ["0"], uid=1001)
        assert sorted(world.read()) == ([] if turn < 3 else [9])


def test_the_reads_that_are_left_go_to_further_steps(tmp_path, monkeypatch):
    world = WorldV2(tmp_path)
    reads = []
    real = ProcFiles.environment
    monkeypatch.setattr(ProcFiles, "environment", lambda self, pid: reads.append(pid) or real(self, pid))
    world.replace_steps(7, range(40))
    world.replace_steps(8, range(2))
    found = world.read()
    assert len(found[7].pids) == 80  # with each slurmstepd
    assert len(reads) == len(set(reads)) == 42  # of the tasks alone
    world.read()
    assert len(reads) == 42


def test_a_process_that_hides_its_environment_stops_no_report(world):
    """Its memory may be mapped from a file system that does not answer; the test uses a pipe without a writer."""
    world.slurm_jobs.processes._bounded = BoundedReader(timeout_s=1.0, slow_s=60.0)
    files = world.slurm_jobs.processes
    for pid in range(50, 60):
        world.start(7, pid)
        (world.root / f"proc/{pid}/environ").unlink()
        os.mkfifo(world.root / f"proc/{pid}/environ")
    world.start(8, 70)
    plant(world.root / "proc", {"70/status": "Uid:\t1001\t1001\t1001\t1001"})
    assert set(world.read()) == {8}
    # and repeated attempts of a user block one thread only
    for pid in range(50, 54):
        with pytest.raises(TimeoutError, match="uid 1000"):
            files.environment(pid)
    (held,) = [thread for thread in threading.enumerate() if thread.name == "bounded-read"]
    assert files.environment(70)["SLURM_JOB_ID"] == "8"
    # until its read ends
    (world.root / "proc/50/environ").open("w").close()
    held.join()
    (world.root / "proc/51/environ").unlink()
    plant(world.root / "proc", process(51, environment={"SLURM_JOB_ID": "7"}))
    assert files.environment(51) == {"SLURM_JOB_ID": "7"}


def test_a_look_that_the_agent_spares_itself_is_not_counted(world, monkeypatch):
    """While the CPUs of a node are busy every read is slow, for which no user is responsible."""
    clock, takes_s, asked = [1000.0], [0.012], []
    files = world.slurm_jobs.processes
    monkeypatch.setattr(files, "_bounded", BoundedReader(monotonic=lambda: clock[0]))
    real = files._slurm_variables

    def slow(pid):
        asked.append(pid)
        clock[0] += takes_s[0]
        return real(pid)

    monkeypatch.setattr(files, "_slurm_variables", slow)
    for pid in range(100, 164):
        world.start(pid, pid, SLURM_RESTART_COUNT="1")
    world.start(200, 200)
    plant(world.root / "proc", {"200/status": "Uid:\t1001\t1001\t1001\t1001"})
    # when the budget of a user with many jobs is used up
    first = world.read()
    assert 20 < len(first) == len(asked) < 30
    # then another user's jobs are read in the same turn
    assert 200 in first
    for _ in range(10):
        clock[0] += 1.0
        world.read()
    # and all of the user's once the node is quick again
    takes_s[0] = 0.0
    clock[0] += 20.0
    found = world.read()
    assert len(found) == 65
    assert {job.restart for job in found.values() if job.uid == 1000} == {1}
    assert len(asked) == len(set(asked))


def test_a_read_that_came_too_late_is_tried_again_however_often(world):
    """The cores of a node may be busy for several turns."""
    world.start(7, 50, SLURM_RESTART_COUNT="1", SLURM_JOB_GPUS="2")
    hung = world.slurm_jobs.processes._bounded._hung
    hung.add(1000)
    assert [len(world.read()) for _ in range(5)] == [0, 0, 1, 1, 1]
    assert world.read()[7].gpus is None
    hung.clear()
    assert (world.read()[7].restart, world.read()[7].gpus) == (1, (2,))


def test_while_reads_of_a_user_hang_those_of_others_are_made_in_the_same_turn(world, monkeypatch):
    monkeypatch.setattr("nodeagent.telemetry.slurm_jobs._READS", 3)
    for pid in range(50, 58):
        world.start(pid, pid)
    world.slurm_jobs.processes._bounded._hung.add(1000)
    for pid in (70, 71):
        world.start(pid, pid)
        plant(world.root / "proc", {f"{pid}/status": "Uid:\t1001\t1001\t1001\t1001"})
    assert world.read().keys() == {70, 71}
    world.read()
    assert len(world.read()) == 10


def test_looks_at_jobs_of_one_user_wait_while_the_readings_of_many_others_hang(world, monkeypatch):
    bounded = BoundedReader(max_hung=2)
    monkeypatch.setattr(world.slurm_jobs.processes, "_bounded", bounded)
    bounded._hung |= {1, 2}
    world.start(7, 50, SLURM_RESTART_COUNT="1")
    assert [world.read() for _ in range(5)] == [{}] * 5
    bounded._hung.clear()
    assert world.read()[7].restart == 1


@pytest.mark.parametrize("reported", [{"SLURM_JOB_UID": "0"}, {"SLURM_JOB_UID": "1001"}])
def test_a_setuid_program_in_a_job_does_not_tell_whose_the_job_is(world, reported):
    world.start(7, 50, **reported, SLURM_JOB_GPUS="0")
    assert world.read() == {}
    world.start(7, 51, SLURM_JOB_UID="1000", SLURM_JOB_GPUS="1")
    assert (world.read()[7].uid, world.read()[7].gpus) == (1000, (1,))


def test_a_setuid_program_of_the_job_s_user_does_not_make_it_root_s(world):
    world.start(7, 50, SLURM_JOB_UID="0")
    world.start(8, 51, environment={"SLURM_JOB_ID": ""})
    for pid in (50, 51):
        plant(world.root / "proc", {f"{pid}/status": "Uid:\t1000\t0\t0\t0"})
    found = [world.read() for _ in range(3)][-1]
    assert {job_id: job.uid for job_id, job in found.items()} == {7: 1000, 8: 1000}


def test_another_user_s_process_in_a_job_s_cgroup_does_not_speak_for_the_job(world):
    """It may be there by sudo: a path of v2 does not name the owner of the job."""
    world.start(7, 101)
    world.node.jobs.opened(99, JobProcess(102, 0, 1, 7, "0", "cgroup"), world.node.now_ns)
    world.node.say(99, "hello")
    world.node.train([99], 3, 10)
    [row] = world.measure()
    assert (row.job_id, row.uid, row.steps) == (7, 1000, None)
    own = world.node.connect(job_id=7, pid=101, rank=0)
    world.node.train([own], 3, 10)
    [row] = world.measure()
    assert (row.uid, row.steps) == (1000, 30)


def test_a_process_that_has_just_been_forked_is_looked_at_again(world):
    """Between fork and exec a process has slurmstepd's environment, and belongs to root."""
    world.start(7, 50, environment={"SLURM_JOB_ID": ""})
    assert world.read() == {}
    plant(world.root / "proc", process(50, environment={"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "3"}))
    assert world.read()[7].gpus == (3,)


def test_jobs_without_cgroups_are_those_that_are_connected(world):
    plant(world.root / "proc", process(80, environment={"SLURM_JOB_ID": "9", "SLURM_STEP_GPUS": "4"}))
    found = world.slurm_jobs.read([JobProcess(80, 1000, 1, 9, "0", "ancestry")])
    assert (found[9].gpus, found[9].pids, found[9].folders) == ((4,), {80}, ())


# ---- idle GPUs


@pytest.mark.parametrize(
    ("gpus", "idle"),
    [
        ([gpu(0, [50]), gpu(1, [])], (1,)),
        ([gpu(0, [50]), gpu(1, [51])], ()),
        ([gpu(0, []), gpu(1, [])], (0, 1)),
        ([gpu(0, [50]), gpu(1, [90])], (1,)),  # another job's process is there
        ([gpu(0, [50]), gpu(1, [12345])], ()),  # its owner is not known: perhaps this job
        ([gpu(0, [50]), gpu(1, None)], ()),
        ([gpu(0, [50])], ()),  # the other one fell off the bus
        ([gpu(0, []), gpu(1, [], [MigReading("", 1, 0, None, None, (GpuProcess(51, None),))])], (0,)),
        (None, None),
    ],
    ids=range(9),
)
def test_gpus_that_no_job_uses(gpus, idle):
    jobs = {7: job([50, 51], (0, 1)), 8: job([90], (), 8)}
    owned = None if gpus is None else with_jobs(gpus, jobs)
    assert idle_gpus(jobs[7], owned) == idle


def test_without_knowing_its_gpus_none_is_idle():
    assert idle_gpus(job([50], None), [gpu(0)]) is None


def test_processes_on_gpus_get_the_jobs_that_they_belong_to():
    instance = MigReading("m", 1, 0, None, None, (GpuProcess(51, 5),))
    [found] = with_jobs([gpu(0, [50, 99], [instance])], {7: job([50, 51], None)})
    assert found.processes == (GpuProcess(50, None, 7), GpuProcess(99, None, None))
    assert found.mig[0].processes == (GpuProcess(51, 5, 7),)


# ---- all together


def test_every_job_has_one_row(world):
    world.start(7, 101, SLURM_JOB_GPUS="0,1")
    world.start(9, 60, SLURM_JOB_GPUS="2")
    rank = world.node.connect(job_id=7, pid=101, rank=0)
    world.node.train([rank], 3, 10)
    mine, silent = world.measure((gpu(0, [101]), gpu(1), gpu(2)))
    assert (mine.job_id, mine.steps, mine.gpus, mine.idle_gpus) == (7, 30, (0, 1), (1,))
    assert (silent.job_id, silent.num_connected, silent.gpus, silent.idle_gpus) == (9, 0, (2,), (2,))
    assert (silent.steps, silent.device, silent.ranks) == (None, None, ())
    assert mine.usage.source == "processes"


def test_a_silent_job_keeps_the_time_when_it_was_seen_first(world):
    world.start(9, 60)
    first = world.measure()[0].first_seen_ns
    world.node.now_s += 30
    assert world.measure()[0].first_seen_ns == first
    world.end(9)
    assert world.measure() == ()
    world.start(9, 61)
    assert world.measure()[0].first_seen_ns > first


def test_a_job_whose_cgroup_is_gone_is_over_at_once(world):
    world.start(7, 101)
    rank = world.node.connect(job_id=7, pid=101, rank=0)
    world.node.train([rank], 3, 10)
    world.node.close(rank, bye=True)
    assert world.measure()[0].num_ended == 1  # between two programs of the batch script
    world.end(7)
    assert world.measure() == ()


def test_a_job_that_was_requeued_and_says_nothing_this_time_is_a_new_run(world):
    world.start(7, 101)
    rank = world.node.connect(job_id=7, pid=101, rank=0)
    world.node.train([rank], 3, 10)
    world.node.close(rank)
    world.end(7)
    world.start(7, 202, SLURM_RESTART_COUNT="1")
    [row] = world.measure()
    assert (row.restart, row.steps, row.num_lost) == (1, None, 0)


def test_a_job_found_by_ancestry_is_kept_for_a_window(world):
    world.node.jobs.opened(1, JobProcess(80, 1000, 1, 9, "0", "ancestry"), world.node.now_ns)
    world.node.say(1, "hello")
    world.node.close(1, bye=True)
    assert [row.job_id for row in world.measure()] == [9]
    world.node.now_s += 61
    assert world.measure() == ()


def test_an_empty_node():
    assert JobRegistry().rows(0) == ()
