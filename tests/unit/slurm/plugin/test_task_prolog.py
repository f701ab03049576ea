"""The TaskProlog hook, under the machine's own sh."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.slurm.configuration import installed_files

HOOKS = Path(__file__).parents[4] / "slurm" / "plugin" / "hooks"


# --- the number of tasks


def task_prolog(**environment: str) -> list[str]:
    done = subprocess.run(
        [str(HOOKS / installed_files.TASK_PROLOG)],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
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
        {"SLURM_NNODES": "2", "SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "09"},
    ],
)
def test_a_job_whose_numbers_are_right_is_left_alone(environment: dict[str, str]) -> None:
    assert task_prolog(**environment) == []


@pytest.mark.parametrize(("per_node", "tasks"), [({}, 3), ({"SLURM_NTASKS_PER_NODE": "2"}, 6)])
def test_a_batch_script_on_more_nodes_than_tasks_gets_a_task_per_node(per_node: dict[str, str], tasks: int) -> None:
    lines = task_prolog(SLURM_NNODES="3", SLURM_NTASKS="1", **per_node)

    assert lines == [f"export SLURM_NTASKS={tasks}", f"export SLURM_NPROCS={tasks}"]


def test_a_batch_script_with_memory_by_gpu_does_not_see_the_default_by_cpu() -> None:
    both = {"SLURM_NNODES": "1", "SLURM_MEM_PER_GPU": "8192", "SLURM_MEM_PER_CPU": "1000"}

    assert task_prolog(**both) == ["unset SLURM_MEM_PER_CPU"]
    assert task_prolog(**both, SLURM_STEP_ID="0") == []
    assert task_prolog(SLURM_NNODES="1", SLURM_MEM_PER_GPU="8192") == []
    assert task_prolog(SLURM_NNODES="1", SLURM_MEM_PER_CPU="1000") == []


# --- jobs that run again in another size


def restarted(slurmctld_says: str | None = None, folder: Path | None = None, **environment: str) -> list[str]:
    """Return the output for a batch script in its second run; the variables are those that Slurm 22.05 sets."""
    path = os.environ["PATH"]
    if folder is not None:
        scontrol = folder / "scontrol"
        answer = "exit 1" if slurmctld_says is None else f"cat <<'EOF'\n{slurmctld_says}\nEOF"
        scontrol.write_text(f'#!/bin/sh\n[ "$*" = "-o show job 12" ] || exit 2\n{answer}\n')
        scontrol.chmod(0o755)
        path = f"{folder}:{path}"
    return task_prolog(**{"PATH": path, "SLURM_RESTART_COUNT": "1", "SLURM_JOB_ID": "12", **environment})


@pytest.mark.parametrize(
    ("submitted", "now", "lines"),
    [
        # -N2 --ntasks-per-node=2, now one node, four nodes
        ((4, 2), (1, "2"), {"SLURM_NTASKS": 2}),
        ((4, 2), (4, "2(x4)"), {"SLURM_NTASKS": 8}),
        # -N1 --ntasks-per-node=2, now two nodes
        ((2, 2), (2, "2(x2)"), {"SLURM_NTASKS": 4}),
        # --gpus=8 -n4, now three nodes of a task each, two uneven ones
        ((4, None), (3, "1(x3)"), {"SLURM_NTASKS": 3}),
        ((4, None), (2, "2,1"), {"SLURM_NTASKS": 3}),
        ((4, None), (4, "2(x3),1"), {"SLURM_NTASKS": 7}),
        # -N1 --ntasks-per-node=4, now half of it
        ((4, 4), (1, "2"), {"SLURM_NTASKS": 2, "SLURM_NTASKS_PER_NODE": 2}),
        # --gpus=6 --ntasks-per-node=1, now spread over two nodes
        ((1, 1), (2, "1(x2)"), {"SLURM_NTASKS": 2}),
    ],
)
def test_the_tasks_of_a_resized_job_are_those_of_slurmctld(submitted, now, lines) -> None:
    tasks, per_node = submitted
    environment = {"SLURM_NTASKS": str(tasks), "SLURM_NNODES": str(now[0]), "SLURM_TASKS_PER_NODE": now[1]}
    if per_node is not None:
        environment["SLURM_NTASKS_PER_NODE"] = str(per_node)
    reported = dict(line.removeprefix("export ").split("=") for line in restarted(**environment))
    assert reported.pop("SLURM_NPROCS") == reported["SLURM_NTASKS"]
    assert {name: int(value) for name, value in reported.items()} == lines


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "1(x2)"},  # no number of tasks at all
        {"SLURM_NNODES": "2", "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "3,1"},
        {"SLURM_NNODES": "2", "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2", "SLURM_TASKS_PER_NODE": "2(x2)"},
        {"SLURM_NNODES": "2", "SLURM_NTASKS": "3", "SLURM_NTASKS_PER_NODE": "2", "SLURM_TASKS_PER_NODE": "2(x2)"},
        {"SLURM_NNODES": "1", "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "4", "SLURM_OVERCOMMIT": "1"},
        {"SLURM_NNODES": "2", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "one or two"},
        {"SLURM_NNODES": "1", "SLURM_GPUS": "4", "SLURM_GPUS_ON_NODE": "4"},
        {"SLURM_NNODES": "2", "SLURM_GPUS": "a100:4", "SLURM_GPUS_ON_NODE": "2"},
        {"SLURM_NNODES": "2", "SLURM_GPUS_PER_NODE": "2", "SLURM_GPUS_ON_NODE": "2"},
    ],
)
def test_nothing_is_printed_for_a_job_that_was_restarted_in_its_own_size(
    environment: dict[str, str], tmp_path: Path
) -> None:
    # slurmctld must not be asked: with its answer, variables would be printed
    assert restarted("TresPerJob=gres:gpu:16 TresPerNode=gres:gpu:8", tmp_path, **environment) == []


@pytest.mark.parametrize(
    ("request_", "environment"),
    [
        ("TresPerJob=gres:gpu:5", {"SLURM_NNODES": "2", "SLURM_GPUS": "5", "SLURM_GPUS_ON_NODE": "3"}),
        ("TresPerNode=gres:gpu:1", {"SLURM_NNODES": "1", "SLURM_GPUS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": "8"}),
        ("TresPerNode=gres:gpu:a:1,gres:gpu:b:1", {"SLURM_NNODES": "1", "SLURM_GPUS": "a:1,b:1", "SLURM_GPUS_ON_NODE": "2"}),
        (None, {"SLURM_NNODES": "1", "SLURM_GPUS": "4", "SLURM_GPUS_ON_NODE": "2"}),
        ("slurm_load_jobs error", {"SLURM_NNODES": "1", "SLURM_GPUS": "4", "SLURM_GPUS_ON_NODE": "2"}),
    ],
    ids=["uneven", "exclusive", "two types", "slurmctld away", "no answer"],
)  # fmt: skip
def test_gpus_that_only_look_wrong_stay(request_: str | None, environment: dict[str, str], tmp_path: Path) -> None:
    assert restarted(request_, tmp_path, **environment) == []


@pytest.mark.parametrize(
    ("request_", "environment", "lines"),
    [
        (
            "JobId=12 JobName=my run UserId=ann(1) NumNodes=1 TresPerJob=gres:gpu:2 MailUser=(null)",
            {"SLURM_NNODES": "1", "SLURM_GPUS": "4", "SLURM_GPUS_ON_NODE": "2"},
            ["export SLURM_GPUS=2"],
        ),
        (
            "JobId=12 TresPerJob= TresPerNode=gres/gpu:a100:2 Power=",
            {"SLURM_NNODES": "4", "SLURM_GPUS": "a100:4", "SLURM_GPUS_ON_NODE": "2"},
            ["export SLURM_GPUS=a100:8"],
        ),
        (
            "JobId=12 TresPerNode=gres:gpu:2",
            {"SLURM_NNODES": "1", "SLURM_GPUS_PER_NODE": "4", "SLURM_GPUS_ON_NODE": "2"},
            ["export SLURM_GPUS_PER_NODE=2"],
        ),
    ],
)
def test_the_gpus_of_a_resized_job_are_those_of_its_request(
    request_: str, environment: dict[str, str], lines: list[str], tmp_path: Path
) -> None:
    assert restarted(request_, tmp_path, **environment) == lines


def test_tasks_of_a_resized_job_are_left_to_srun(tmp_path: Path) -> None:
    stale = {
        "SLURM_NNODES": "1",
        "SLURM_NTASKS": "4",
        "SLURM_TASKS_PER_NODE": "2",
        "SLURM_GPUS": "4",
        "SLURM_GPUS_ON_NODE": "2",
    }
    assert restarted("TresPerJob=gres:gpu:2", tmp_path, SLURM_STEP_ID="0", **stale) == []
    assert len(restarted("TresPerJob=gres:gpu:2", tmp_path, SLURM_STEP_ID="4294967291", **stale)) == 3


def test_the_first_run_of_a_job_with_gpus_in_all_may_have_another_size_too(tmp_path: Path) -> None:
    first = {"SLURM_RESTART_COUNT": "0", "SLURM_NNODES": "1", "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2"}
    on_node = {"SLURM_GPUS_ON_NODE": "2"}
    assert restarted("TresPerJob=gres:gpu:2", tmp_path, SLURM_GPUS="4", **first, **on_node) == [
        "export SLURM_NTASKS=2", "export SLURM_NPROCS=2", "export SLURM_GPUS=2",
    ]  # fmt: skip
    # No policy chooses the size of a job with GPUs by node.
    assert restarted("TresPerNode=gres:gpu:2", tmp_path, SLURM_GPUS_PER_NODE="4", **first, **on_node) == []


# --- what PyTorch jobs load


class Node:
    """A compute node on which an agent listens, and the TaskProlog that was installed for it."""

    def __init__(self, folder: Path) -> None:
        self.job_side = folder / "jobside"
        (self.job_side / "headway_job").mkdir(parents=True)
        (self.job_side / "headway_job" / "__init__.py").touch()
        self.job_socket = folder / "job.sock"
        self.agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.agent.bind(str(self.job_socket))
        self.script = folder / installed_files.TASK_PROLOG
        text = (HOOKS / installed_files.TASK_PROLOG).read_text()
        self.script.write_text(installed_files.with_job_side(text, self.job_side, self.job_socket))
        self.script.chmod(0o755)

    @property
    def ours(self) -> str:
        return f"{self.job_side}:{self.job_side}/before_2_5"

    def reported(self, **environment: str) -> dict[str, str]:
        """Return the lines that slurmstepd reads: at most 4,095 bytes of each."""
        done = subprocess.run(
            [str(self.script)],
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            timeout=60,
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


@pytest.mark.parametrize(
    "odd",
    [
        {"SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "09"},
        {"SLURM_NTASKS": "08", "SLURM_TASKS_PER_NODE": "2"},
        {"SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "09"},
        {"SLURM_NTASKS": "9" * 23, "SLURM_TASKS_PER_NODE": "2(x3"},
        {"SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "9999999999(x9999999999)"},
        {"SLURM_GPUS_ON_NODE": "08", "SLURM_GPUS": "09"},
        {"SLURM_RESTART_COUNT": "9" * 23},
        {"SLURM_NNODES": "08", "SLURM_NTASKS": "1"},
    ],
)
def test_numbers_that_a_shell_cannot_count_with_keep_no_job_from_headway_job(node: Node, odd: dict[str, str]) -> None:
    environment = {"SLURM_RESTART_COUNT": "1", "SLURM_NNODES": "2", "SLURM_JOB_ID": "12", **odd}
    assert node.reported(**environment)["PYTHONPATH"] == node.ours
    del environment["SLURM_RESTART_COUNT"]
    assert node.reported(**environment)["PYTHONPATH"] == node.ours


@pytest.mark.parametrize("gpus", ["SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_jobs_with_gpus_load_headway_job(node: Node, gpus: str) -> None:
    assert node.reported(**{gpus: "0"}) == {"PYTHONPATH": node.ours, "HEADWAY_JOB_SOCKET": str(node.job_socket)}


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
    assert node.reported(SLURM_JOB_GPUS="0", PYTHONPATH=own)["PYTHONPATH"] == f"{node.ours}{behind}"


def test_a_task_that_inherits_ours_gets_it_once(node: Node) -> None:
    inherited = node.reported(SLURM_JOB_GPUS="0", PYTHONPATH="/a")["PYTHONPATH"]

    assert "PYTHONPATH" not in node.reported(SLURM_STEP_GPUS="0", PYTHONPATH=inherited)
    assert "PYTHONPATH" not in node.reported(SLURM_STEP_GPUS="0", PYTHONPATH=f"/mine:{inherited}")


@pytest.mark.parametrize("own", ["/a\n/b", "/" + 3000 * "x", "/" + 1500 * "é"])
def test_a_path_that_slurmstepd_would_misread_is_left_alone(node: Node, own: str) -> None:
    assert "PYTHONPATH" not in node.reported(SLURM_JOB_GPUS="0", PYTHONPATH=own)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"CUDA_VISIBLE_DEVICES": "NoDevFiles"},
        *({"SLURM_JOB_GPUS": "0", "HEADWAY_PROFILE": word} for word in ("off", "OFF", "no", "0")),
    ],
)
def test_jobs_that_are_not_measured_can_import_headway_job_too(node: Node, environment: dict[str, str]) -> None:
    assert node.reported(**environment) == {"PYTHONPATH": node.ours}


def test_a_job_on_a_node_whose_agent_is_away_is_given_the_same(node: Node) -> None:
    before = node.reported(SLURM_JOB_GPUS="0")
    node.job_socket.unlink()

    assert node.reported(SLURM_JOB_GPUS="0") == before
    assert node.reported() == {"PYTHONPATH": node.ours}


def test_without_the_folder_jobs_are_left_alone(node: Node) -> None:
    (node.job_side / "headway_job" / "__init__.py").unlink()

    assert node.reported(SLURM_JOB_GPUS="0") == {}


def test_a_batch_script_may_need_both(node: Node) -> None:
    reported = node.reported(SLURM_JOB_GPUS="0", SLURM_NNODES="2", SLURM_NTASKS="1")

    assert set(reported) == {"SLURM_NTASKS", "SLURM_NPROCS", "PYTHONPATH", "HEADWAY_JOB_SOCKET"}


@pytest.mark.parametrize(
    ("path", "plain"),
    [("/opt/headway/lib/python3.11/x@1+2", True), ("/a b", False), ("/a:b", False), ("a", False), ("/$(x)", False), ("/a'", False)],
)  # fmt: skip
def test_only_plain_paths_are_put_into_scripts(path: str, plain: bool) -> None:
    assert installed_files.is_plain(Path(path)) == plain
