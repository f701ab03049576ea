"""The node agent on real nodes finds the job of a process from the kernel, by cgroup or by ancestry."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm.minicluster.cluster import ClusterSpec, MiniCluster
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.unit.nodeagent.wire.packets import packet

ROOT = Path(__file__).parents[3]
PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
"""A Python that every user may run: jobs run as a plain user."""
USER = "daemon"
USER_ID = 1

# A process of a job: it connects, prints whether it was welcomed, and sends the given packets.
CLIENT = """
import socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
welcomed = bool(sock.recv(1000))
print("welcomed" if welcomed else "refused", flush=True)
for packet in sys.argv[3:] if welcomed else ():
    sock.send(bytes.fromhex(packet))
time.sleep(float(sys.argv[2]))
"""


@dataclass
class AgentOnNode:
    """A mini-cluster of one node with an agent on it."""

    cluster: MiniCluster
    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "run" / "job.sock"

    @property
    def reports(self) -> list[dict[str, Any]]:
        path = self.folder / "reports"
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # the last line may be just being written
        return [json.loads(line) for line in whole.splitlines()]

    def jobs(self) -> dict[int, dict[str, Any]]:
        """Return the rows of the newest report, by job."""
        return {row["job_id"]: row for row in self.reports[-1]["jobs"]} if self.reports else {}

    def client(self, seconds: float, *packets: bytes) -> tuple[str, ...]:
        """Return the command of a process that reports."""
        (self.folder / "client.py").write_text(CLIENT)
        words = (PYTHON or "", self.folder / "client.py", self.socket, seconds, *(each.hex() for each in packets))
        return tuple(str(word) for word in words)

    def submit(self, *command: str, step: bool = False) -> int:
        """Submit a batch job with two GPUs that runs the command, in a step of its own if `step`. Return its id."""
        line = " ".join(("srun", *command) if step else ("exec", *command))
        done = self.cluster.run(
            *("sbatch", "--parsable", "--gres=gpu:2", "--output=job-%j.out", "--mem=100"),
            stdin=f"#!/bin/sh\n{line}\n",
            user=USER,
        )
        return int(done.stdout)

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (found := condition()):
            if time.monotonic() > deadline:
                log = (self.folder / "log").read_text()[-2000:]
                queue = self.cluster.run("scontrol", "-o", "show", "job").stdout[-3000:]
                outputs = (path.read_text() for path in self.cluster.files.work.glob("job-*.out"))
                queue += "".join(outputs)[-2000:]
                raise AssertionError(f"{what}: not within {timeout_s:g} s\n{queue}\n{self.reports[-1:]}\n{log}")
            time.sleep(0.05)
        return found

    def until_reports(self, job_id: int) -> dict[str, Any]:
        """Wait until a process of the job has stepped and its environment has been read. Return the row of the job."""
        row: dict[str, Any] = self.until(
            lambda: row if (row := self.jobs().get(job_id)) and row["ranks"] and row["gpus"] else None,
            f"job {job_id} reports",
        )
        return row


@contextmanager
def agent_on_node(cgroup: str) -> Iterator[AgentOnNode]:
    skip_unless_possible()
    if PYTHON is None:
        pytest.skip("there is no python3 that every user may run")
    spec = ClusterSpec(name=unique_name(), nodes=1, gpus=4, cgroup=cgroup)  # type: ignore[arg-type]
    with MiniCluster(spec) as cluster:
        folder = cluster.directory / "agent"
        folder.mkdir(mode=0o755)
        # Not shorter: the agent examines a new process that still is slurmstepd in three reports, and then never again
        (folder / "agent.toml").write_text(
            'controller_address = "127.0.0.1:1"\nreport_interval_s = 0.5\nnode_name = "n1"\ngpus = "off"\n'
            f'job_socket = "{folder}/run/job.sock"\n'
        )
        program = f"exec {sys.executable} -m tests.cluster.agents.agent_program {folder}/agent.toml {folder}/reports"
        started = cluster.run_on("n1", "sh", "-c", f"cd {ROOT}; ({program}) >{folder}/log 2>&1 </dev/null & echo $!")
        agent = AgentOnNode(cluster, folder)
        agent.until(lambda: agent.reports, "the first report")
        yield agent
        cluster.run_on("n1", "sh", "-c", f"kill -TERM {started.stdout.strip()}")
        agent.until(lambda: not agent.socket.exists(), "the agent ends on SIGTERM")


@pytest.fixture(scope="module", params=["auto", "none"], ids=["cgroups", "no cgroups"])
def shared(request: pytest.FixtureRequest) -> Iterator[AgentOnNode]:
    with agent_on_node(request.param) as agent:
        yield agent


@pytest.fixture
def node(shared: AgentOnNode) -> Iterator[AgentOnNode]:
    yield shared
    shared.cluster.run("scancel", f"--user={USER}")
    shared.cluster.wait_idle()


def hello_and_steps(job_id: int) -> tuple[bytes, bytes]:
    return packet("hello", 0, job_id=job_id, rank=0), packet("steps", 1)


def test_a_batch_job_and_a_step_of_another(node: AgentOnNode) -> None:
    batch = node.submit(*node.client(60, *hello_and_steps(1)))
    step = node.submit(*node.client(60, *hello_and_steps(1)), step=True)
    rows = [node.until_reports(batch), node.until_reports(step)]
    assert [row["uid"] for row in rows] == [USER_ID, USER_ID]
    assert [row["ranks"][0]["step_id"] for row in rows] == ["batch", "0"]
    assert sorted(gpu for row in rows for gpu in row["gpus"]) == [0, 1, 2, 3]
    assert all(row["usage"]["memory_bytes"] > 1_000_000 for row in rows)
    assert all(row["usage"]["cpu_s"] is not None for row in rows)
    node.cluster.run("scancel", str(batch), str(step))
    node.until(lambda: not {batch, step} & {job for job, row in node.jobs().items() if row["num_connected"]}, "they go")


def test_a_job_that_lies_is_filed_under_its_true_id(node: AgentOnNode) -> None:
    honest = node.submit(*node.client(60, *hello_and_steps(1)))
    node.until_reports(honest)
    liar = node.submit(*node.client(60, *hello_and_steps(honest)))
    assert node.until_reports(liar)["claimed_job_ids"] == [str(honest)]
    assert len(node.jobs()[honest]["ranks"]) == 1


def test_a_process_outside_any_job_is_refused(node: AgentOnNode) -> None:
    before = node.reports[-1]["socket"]["refused"]
    for user in (USER, None):
        said = node.cluster.run_on("n1", *node.client(0, *hello_and_steps(1)), user=user).stdout
        assert said == "refused\n"
    node.until(lambda: node.reports[-1]["socket"]["refused"] == before + 2, "both are counted")


def test_a_forged_slurmstepd_is_not_believed(node: AgentOnNode) -> None:
    """A user can make a program with the name, the title and the socket of slurmstepd without Slurm."""
    forger = node.folder / "forger.py"
    forger.write_text(
        "import os, socket, subprocess, sys\n"
        "listener = socket.socket(socket.AF_UNIX)\n"
        "path = f'/tmp/n1_{os.getpid()}7777.0'\n"
        "listener.bind(path)\n"
        "open('/proc/self/comm', 'w').write('slurmstepd')\n"
        "subprocess.run(sys.argv[1:], check=True)\n"
        "os.unlink(path)\n"
    )
    argv = node.client(0, *hello_and_steps(7777))
    said = node.cluster.run_on("n1", PYTHON or "", str(forger), *argv, user=USER).stdout
    assert said == "refused\n"


def test_a_job_that_says_nothing_is_seen_where_there_are_cgroups(node: AgentOnNode) -> None:
    if node.cluster.cgroup == "none":
        pytest.skip("Slurm makes no cgroups here")
    silent = node.submit("sleep", "60")
    row = node.until(lambda: node.jobs().get(silent), "the silent job's row")
    assert (row["uid"], row["num_connected"], row["steps"]) == (USER_ID, 0, None)
    assert len(row["gpus"]) == 2
    node.cluster.run("scancel", str(silent))
    node.until(lambda: silent not in node.jobs(), "its row goes with its cgroup")


def test_a_job_that_is_requeued_is_a_new_run(node: AgentOnNode) -> None:
    argv = node.client(60, *hello_and_steps(1))
    again = packet("hello", 0, restart=1, rank=0)
    line = (
        f"if [ -z $SLURM_RESTART_COUNT ]; then exec {' '.join(argv)}; fi; "
        f"exec {' '.join(node.client(60, again, packet('steps', 1, steps=3)))}"
    )
    job = node.submit("sh", "-c", f"'{line}'")
    assert node.until_reports(job)["restart"] == 0
    node.cluster.run("scontrol", "requeue", str(job))
    node.until(lambda: "BeginTime" in node.cluster.run("squeue", "--noheader").stdout, "it waits, as Slurm makes it")
    time.sleep(1.0)  # slurmd refuses a batch script that starts within the second in which its run before ended
    node.cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now")
    row = node.until(
        lambda: row if (row := node.jobs().get(job)) and row["restart"] == 1 and row["ranks"] else None,
        "the second run",
    )
    assert (row["steps"], len(row["ranks"])) == (3, 1)
