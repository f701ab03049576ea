"""The user of a job whose processes do not show Slurm's environment, such as those of a container (cgroup v2)."""

import pytest

from nodeagent.identity.bounded_read import ReadDeferredError
from tests.unit.nodeagent.identity.trees import plant, process
from tests.unit.nodeagent.telemetry.test_slurm_jobs import World

READINGS = 6
"""More readings than those after which a process without Slurm's environment is given up."""


class UnifiedWorld(World):
    """A node with cgroup v2: the slurmstepd of each step is in the job's cgroup, with a lower pid than the user's processes."""

    def __init__(self, root):
        super().__init__(root)
        plant(root, {"cgroup/cgroup.controllers": "cpu memory"})

    def run(self, step, pid, *, uid, name="python", folder="user/task_0", **environment):
        """Start a process of job 7."""
        files = process(pid, name=name, environment={"PATH": "/bin"} | environment)
        plant(self.root / "proc", files | {f"{pid}/status": f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}"})
        plant(self.root, {f"{self.folder(step)}/{folder}/cgroup.procs": pid})

    def end_step(self, step):
        for path in (self.root / self.folder(step)).rglob("cgroup.procs"):
            path.write_text("")

    def folder(self, step):
        return f"cgroup/system.slice/slurmstepd.scope/job_7/step_{step}"

    def stepd(self, step, pid):
        self.run(step, pid, uid=0, name="slurmstepd", folder="slurm")

    def extern(self):
        """Start the processes of an extern step, all of which are root's."""
        self.stepd("extern", 30)
        self.run("extern", 31, uid=0, name="sleep", folder="user/task_special")

    def uids(self):
        """Return the uid of each job after some readings."""
        found = [self.read() for _ in range(READINGS)][-1]
        return [job.uid for job in found.values()]


@pytest.fixture
def world(tmp_path):
    return UnifiedWorld(tmp_path)


def test_a_job_that_hides_its_environment_is_its_user_s_and_is_not_forgotten(world):
    world.extern()
    world.stepd("0", 40)
    world.run("0", 50, uid=1000)
    rank = world.node.connect(job_id=7, pid=50, rank=0)
    for turn in range(1, READINGS):
        world.node.train([rank], 3, 10)
        [row] = world.measure()
        assert (row.uid, row.steps, row.num_connected) == (1000, 30 * turn, 1)
        assert len(world.node.jobs.training_processes(7, 0)) == 1


def test_a_process_that_another_user_started_in_such_a_job_does_not_end_its_row(world):
    """The job's user may act as another one, such as by su, before the training begins."""
    world.stepd("0", 40)
    world.run("0", 45, uid=1001)
    world.run("1", 50, uid=1000)
    rank = world.node.connect(job_id=7, pid=50, rank=0)
    for _ in range(READINGS):
        world.node.train([rank], 3, 10)
        [row] = world.measure()
        assert (row.uid, row.num_connected) == (1000, 1)


def test_of_a_job_with_an_extern_step_only_the_user_is_not_known(world):
    world.extern()
    assert world.uids() == []


def test_a_user_who_is_known_stays_so_when_only_the_extern_step_is_left(world):
    world.extern()
    world.stepd("0", 40)
    world.run("0", 50, uid=1000, SLURM_JOB_ID="7")
    assert world.uids() == [1000]
    world.end_step("0")
    assert world.uids() == [1000]
    assert world.read()[7].uid_is_certain


@pytest.mark.parametrize("environment", [{}, {"SLURM_JOB_ID": "7"}], ids=["hidden", "shown"])
def test_a_job_of_root_is_root_s(world, environment):
    world.extern()
    world.stepd("0", 40)
    world.run("0", 50, uid=0, **environment)
    assert world.uids() == [0]


def test_while_the_processes_of_a_user_are_not_read_the_job_is_not_root_s(world, monkeypatch):
    """A process of root in the job, such as by sudo, does not name its user; the user's own process is read later."""
    world.stepd("0", 40)
    world.run("0", 50, uid=1000)
    world.run("1", 45, uid=0)
    files = world.slurm_jobs.processes
    real = files.environment

    def environment(pid):
        if pid == 50:
            raise ReadDeferredError("reads for uid 1000 have taken too long lately")
        return real(pid)

    monkeypatch.setattr(files, "environment", environment)
    assert world.uids() == []
    monkeypatch.undo()
    assert world.uids() == [1000]
