"""Boot slurmctld with hollow nodes and a Headway, and fill the queue."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from controller.slurm.model.marks import HOLD_MARK
from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation
from tests.hollow import answering
from tests.hollow.scontrol import WrappedScontrol

PARTITION = "big"
GPUS = 8
"""GPUs of each node."""
_RACK = 200
_ARRAY = 500
_SUBMITTERS = 4
_SUBMIT_S = 1200.0
_REGISTER_S = 1200.0
_CTL = "ctl"


@dataclass(frozen=True, slots=True)
class Hollow:
    """A cluster without slurmds, and its Headway."""

    cluster: MiniCluster
    headway: Installation
    scontrol: WrappedScontrol
    nodes: str
    """Names of all hollow nodes, as a host list."""

    def close_nodes(self) -> None:
        """Drain every node: no job can start."""
        self.cluster.run("scontrol", "update", f"NodeName={self.nodes}", "State=DRAIN", "Reason=closed")

    def open_nodes(self) -> None:
        """Resume every node."""
        self.cluster.run("scontrol", "update", f"NodeName={self.nodes}", "State=RESUME")

    def wait_registered(self) -> None:
        """Wait until every node has registered: before, slurmctld refuses to drain and to resume it."""
        deadline = time.monotonic() + _REGISTER_S
        while "unknown" in (states := self.cluster.run("sinfo", "-h", "-N", "-n", self.nodes, "-o", "%T").stdout):
            assert time.monotonic() < deadline, (
                f"nodes have not registered within {_REGISTER_S:g} s: {Counter(states.split())}"
            )
            time.sleep(0.2)

    def submit(self, jobs: int, gpus: int = 1) -> None:
        """Submit jobs as held array tasks, and change each, so that slurmctld makes a record of its own for it."""
        counts = [min(_ARRAY, jobs - begin) for begin in range(0, jobs, _ARRAY)]
        with ThreadPoolExecutor(_SUBMITTERS) as pool:
            list(pool.map(lambda count: self._submit_array(count, gpus), counts))

    def _submit_array(self, count: int, gpus: int) -> None:
        array_id = self.cluster.run(
            "sbatch", "--parsable", "--hold", f"--array=1-{count}", f"--partition={PARTITION}", "--output=/dev/null",
            "--time=600", "--mem=100", f"--gres=gpu:{gpus}", "--job-name=train", "--wrap=sleep 1",
            timeout=_SUBMIT_S,
        ).stdout.strip()  # fmt: skip
        # The hold and the mark are those that job_submit.lua gives every job.
        lines = [
            f"update JobId={array_id}_{task} TimeLimit={600 + task % 900} AdminComment={HOLD_MARK}\n"
            for task in range(1, count + 1)
        ]
        self.cluster.run("scontrol", "-o", stdin="".join(lines), timeout=_SUBMIT_S)

    def change(self, count: int, number: int) -> None:
        """Change the time limit of the first jobs in the queue, so that the policy's answer can differ."""
        queue = self.cluster.run("squeue", "-h", "-r", "-o", "%i", "--sort=i").stdout.split()[:count]
        lines = [f"update JobId={job_id} TimeLimit={2000 + number}\n" for job_id in queue]
        self.cluster.run("scontrol", "-o", stdin="".join(lines), timeout=_SUBMIT_S)

    def states(self) -> Counter[str]:
        """Return the number of jobs in each of Slurm's states."""
        return Counter(self.cluster.run("squeue", "-h", "-r", "-o", "%T").stdout.split())


@contextmanager
def hollow_cluster(name: str, *, nodes: int, plugin: bool = True, **settings: Any) -> Iterator[Hollow]:
    """Boot slurmctld and the process that answers for the nodes; the caller starts policy server and controller.

    Without the plugin a long queue is submitted in half the time: job_submit/lua lists all jobs anew for it once a second.
    """
    names, lines = _conf(nodes)
    with Installation.prepare(name, partitions=(PARTITION,)) as headway, ExitStack() as stack:
        spec = headway.cluster_spec(name=name, nodes=1, extra_conf=lines)
        cluster = stack.enter_context(MiniCluster(spec if plugin else replace(spec, job_submit_lua=None)))
        cluster.run_on(_CTL, "ip", "route", "add", "local", "10.192.0.0/10", "dev", "lo")
        log = cluster.files.log / "hollow.log"
        cluster.start_on(_CTL, sys.executable, answering.__file__, str(cluster.slurm_conf), log=log)
        scontrol = WrappedScontrol(headway.folder / "bin")
        headway.configure(cluster, **({"slurm_bin": str(scontrol.folder), "slurm_timeout_s": 60.0} | settings))
        hollow = Hollow(cluster, headway, scontrol, names)
        hollow.wait_registered()
        try:
            yield hollow
        finally:  # before the cluster is removed: a Slurm command without a slurm.conf tries again for a minute
            for process in reversed(list(headway.processes)):
                headway.stop(process)


def _conf(nodes: int) -> tuple[str, tuple[str, ...]]:
    """Return the names of the nodes and the lines of slurm.conf for racks of up to 200 nodes."""
    gres = ",".join(f"gpu:g{gpu}:1" for gpu in range(GPUS))
    lines = ["SlurmdTimeout=0", "MaxJobCount=200000", "TreeWidth=65533"]
    names: list[str] = []
    for rack, begin in enumerate(range(0, nodes, _RACK), 1):
        count = min(_RACK, nodes - begin)
        names.append(f"r{rack}n[1-{count}]")
        lines.append(
            f"NodeName={names[-1]} NodeAddr=10.{192 + rack // 250}.{rack % 250}.[1-{count}] Port={answering.PORT} CPUs=64 "
            f"Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=256000 Gres={gres} Feature=rack{rack} "
            "State=UNKNOWN"
        )
    lines.append(f"PartitionName={PARTITION} Nodes={','.join(names)} MaxTime=INFINITE State=UP")
    return ",".join(names), tuple(lines)
