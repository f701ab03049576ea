"""The scripts that slurmctld and slurmd run, under the machine's own sh."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from controller import integration
from controller.lease import Lease, write_lease

SHIPPED = Path(__file__).parents[3] / "slurm"
HOOKS = SHIPPED / "hooks"


def test_every_shipped_script_carries_the_version_that_doctor_looks_for() -> None:
    for name in ("job_submit.lua", f"hooks/{integration.EVENT_HOOK}", f"hooks/{integration.TASK_PROLOG}"):
        assert integration.script_version((SHIPPED / name).read_text()) == integration.VERSION, name


@pytest.mark.parametrize("name", [integration.EVENT_HOOK, integration.TASK_PROLOG])
def test_hooks_are_executable(name: str) -> None:
    assert os.access(HOOKS / name, os.X_OK)


# --- start and end of jobs


class Slurmctld:
    """Runs the event hook as slurmctld does, for a runtime folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.runtime_dir = folder
        self.script = folder / integration.EVENT_HOOK
        text = (HOOKS / integration.EVENT_HOOK).read_text()
        self.script.write_text(integration.with_runtime_dir(text, folder))
        self.script.chmod(0o755)

    def beat(self, age_s: float = 0) -> None:
        lease = Lease(int(time.time() - age_s), 30, ("dl",), 0, 65536)
        write_lease(self.runtime_dir / "lease", lease)

    def run(self, context: str = "epilog_slurmctld", **job: str) -> int:
        environment = {"PATH": os.environ["PATH"], "SLURM_SCRIPT_CONTEXT": context, "SLURM_JOB_ID": "12", **job}
        return subprocess.run([str(self.script)], env=environment, timeout=20, check=False).returncode


@pytest.fixture
def slurmctld(tmp_path: Path) -> Slurmctld:
    slurmctld = Slurmctld(tmp_path)
    slurmctld.beat()
    return slurmctld


@pytest.fixture
def pipe(slurmctld: Slurmctld) -> Iterator[int]:
    path = slurmctld.runtime_dir / "wake"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def read(pipe: int) -> str:
    try:
        return os.read(pipe, 65536).decode()
    except BlockingIOError:
        return ""


@pytest.mark.parametrize(
    ("context", "job", "line"),
    [
        ("prolog_slurmctld", {}, "start 12\n"),
        ("epilog_slurmctld", {}, "end 12\n"),
        ("epilog_slurmctld", {"SLURM_ARRAY_JOB_ID": "11", "SLURM_ARRAY_TASK_ID": "4"}, "end 11_4\n"),
    ],
)
def test_the_controller_is_told(
    slurmctld: Slurmctld, pipe: int, context: str, job: Mapping[str, str], line: str
) -> None:
    assert slurmctld.run(context, **job) == 0
    assert read(pipe) == line


def test_slurm_that_does_not_tell_the_context_is_understood_by_the_scripts_name(
    slurmctld: Slurmctld, pipe: int
) -> None:
    slurmctld.script = slurmctld.script.rename(slurmctld.runtime_dir / "epilog.sh")

    assert slurmctld.run(context="") == 0
    assert read(pipe) == "end 12\n"


@pytest.mark.parametrize("age_s", [60, -60])
def test_a_controller_that_is_away_is_not_told(slurmctld: Slurmctld, pipe: int, age_s: float) -> None:
    slurmctld.beat(age_s=age_s)

    assert slurmctld.run() == 0
    assert read(pipe) == ""


def test_a_broken_lease_is_no_lease(slurmctld: Slurmctld, pipe: int) -> None:
    (slurmctld.runtime_dir / "lease").write_text("time=$(reboot)\nstale_after=x; rm -rf /\n")

    assert slurmctld.run() == 0
    assert read(pipe) == ""


def test_a_full_pipe_does_not_hold_slurmctld_up(slurmctld: Slurmctld, pipe: int) -> None:
    for size in (4096, 1):
        try:
            while True:
                os.write(pipe, b"x" * size)
        except BlockingIOError:
            pass

    assert slurmctld.run() == 0


def test_a_pipe_that_nobody_reads_does_not_either(slurmctld: Slurmctld) -> None:
    os.mkfifo(slurmctld.runtime_dir / "wake")

    assert slurmctld.run() == 0


def test_nothing_is_made_where_nothing_was(slurmctld: Slurmctld) -> None:
    assert slurmctld.run() == 0
    assert not (slurmctld.runtime_dir / "wake").exists()


# --- TaskProlog


def task_prolog(**environment: str) -> list[str]:
    done = subprocess.run(
        [str(HOOKS / integration.TASK_PROLOG)],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_NNODES": "2"},
        {"SLURM_NNODES": "2", "SLURM_NTASKS": "2"},
        {"SLURM_NNODES": "2", "SLURM_NTASKS": "16"},
        {"SLURM_NNODES": "2", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"},
        {"SLURM_NNODES": "two", "SLURM_NTASKS": "1"},
    ],
)
def test_a_job_whose_numbers_are_right_is_left_alone(environment: dict[str, str]) -> None:
    assert task_prolog(**environment) == []


@pytest.mark.parametrize(("per_node", "tasks"), [({}, 3), ({"SLURM_NTASKS_PER_NODE": "2"}, 6)])
def test_a_batch_script_on_more_nodes_than_tasks_gets_a_task_per_node(per_node: dict[str, str], tasks: int) -> None:
    lines = task_prolog(SLURM_NNODES="3", SLURM_NTASKS="1", **per_node)

    assert lines == [f"export SLURM_NTASKS={tasks}", f"export SLURM_NPROCS={tasks}"]


# --- TaskProlog: what PyTorch jobs load


class Node:
    """A compute node on which an agent listens, and the TaskProlog that was installed for it."""

    def __init__(self, folder: Path) -> None:
        self.job_side = folder / "jobside"
        (self.job_side / "headway_job").mkdir(parents=True)
        (self.job_side / "headway_job" / "__init__.py").touch()
        self.job_socket = folder / "job.sock"
        self.agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.agent.bind(str(self.job_socket))
        self.script = folder / integration.TASK_PROLOG
        text = (HOOKS / integration.TASK_PROLOG).read_text()
        self.script.write_text(integration.with_job_side(text, self.job_side, self.job_socket))
        self.script.chmod(0o755)

    @property
    def ours(self) -> str:
        return f"{self.job_side}:{self.job_side}/before_2_5"

    def told(self, **environment: str) -> dict[str, str]:
        """What slurmstepd reads: 4,095 bytes at a time, line by line."""
        done = subprocess.run(
            [str(self.script)],
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        assert done.stderr == ""
        assert len(done.stdout) < 4096
        lines = [line.removeprefix("export ") for line in done.stdout.splitlines() if line.startswith("export ")]
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.agent.close()


@pytest.mark.parametrize("gpus", ["SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_jobs_with_gpus_load_what_tells_the_agent(node: Node, gpus: str) -> None:
    assert node.told(**{gpus: "0"}) == {"PYTHONPATH": node.ours, "HEADWAY_JOB_SOCKET": str(node.job_socket)}


@pytest.mark.parametrize(
    ("own", "behind"),
    [
        ("", ""),
        ("/a", ":/a"),
        ("/a b:/c", ":/a b:/c"),
        ("$(date):'", ":$(date):'"),
        ("/a\\tb:/x\\c/y", ":/a\\tb:/x\\c/y"),
    ],
)
def test_a_users_own_path_stays_behind_ours_as_it_was(node: Node, own: str, behind: str) -> None:
    assert node.told(SLURM_JOB_GPUS="0", PYTHONPATH=own)["PYTHONPATH"] == f"{node.ours}{behind}"


def test_a_task_that_inherits_ours_gets_it_once(node: Node) -> None:
    inherited = node.told(SLURM_JOB_GPUS="0", PYTHONPATH="/a")["PYTHONPATH"]

    assert "PYTHONPATH" not in node.told(SLURM_STEP_GPUS="0", PYTHONPATH=inherited)
    assert "PYTHONPATH" not in node.told(SLURM_STEP_GPUS="0", PYTHONPATH=f"/mine:{inherited}")


@pytest.mark.parametrize("own", ["/a\n/b", "/" + 3000 * "x", "/" + 1500 * "é"])
def test_a_path_that_slurmstepd_would_misread_is_left_alone(node: Node, own: str) -> None:
    assert "PYTHONPATH" not in node.told(SLURM_JOB_GPUS="0", PYTHONPATH=own)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"CUDA_VISIBLE_DEVICES": "NoDevFiles"},
        *({"SLURM_JOB_GPUS": "0", "HEADWAY_PROFILE": word} for word in ("off", "OFF", "no", "0")),
    ],
)
def test_jobs_without_gpus_and_who_does_not_want_it_are_left_alone(node: Node, environment: dict[str, str]) -> None:
    assert node.told(**environment) == {}


@pytest.mark.parametrize("lacking", ["agent", "folder"])
def test_without_an_agent_or_what_is_to_be_loaded_jobs_are_left_alone(node: Node, lacking: str) -> None:
    if lacking == "agent":
        node.job_socket.unlink()
    else:
        (node.job_side / "headway_job" / "__init__.py").unlink()

    assert node.told(SLURM_JOB_GPUS="0") == {}


def test_a_batch_script_may_need_both(node: Node) -> None:
    told = node.told(SLURM_JOB_GPUS="0", SLURM_NNODES="2", SLURM_NTASKS="1")

    assert set(told) == {"SLURM_NTASKS", "SLURM_NPROCS", "PYTHONPATH", "HEADWAY_JOB_SOCKET"}


@pytest.mark.parametrize(
    ("path", "plain"),
    [("/opt/headway/lib/python3.11/x@1+2", True), ("/a b", False), ("/a:b", False), ("a", False), ("/$(x)", False), ("/a'", False)],
)  # fmt: skip
def test_only_plain_paths_are_put_into_scripts(path: str, plain: bool) -> None:
    assert integration.is_plain(Path(path)) == plain
