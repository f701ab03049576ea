"""Plays the jobs on a mini-cluster, and writes down what each program of Slurm prints of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slurm.errors import MiniClusterError
from slurm.minicluster.cluster import ClusterSpec, MiniCluster, RunningCluster
from slurm.minicluster.spec import CgroupMode
from tests.recordings.cgroups import recorded_cgroups
from tests.recordings.jobs import JOBS
from tests.recordings.topologies import TOPOLOGIES, Topology

GPU_TYPES = ("a100",) * 4 + ("h100",) * 4
_SETTLE_S = 4.0
_JSON = "squeue-one-job.json"
_COLUMNS = "JobID:20,Name:20,StateCompact:20,Reason:20,ReasonList:20,Priority:20,PriorityLong:20,tres-per-node:20"
Write = Callable[[str, str], None]

SHOWN: dict[str, Sequence[str]] = {
    "version.txt": ("scontrol", "version"),
    "show-config.txt": ("scontrol", "show", "config"),
    "show-node.txt": ("scontrol", "-o", "-d", "show", "node"),
    "show-partition.txt": ("scontrol", "-o", "show", "partition"),
    "show-reservation.txt": ("scontrol", "-o", "show", "reservation"),
    "show-job-detail.txt": ("scontrol", "-o", "-d", "show", "job"),
    "show-step.txt": ("scontrol", "-o", "show", "step"),
    "squeue.txt": ("squeue", "--all"),
    "squeue-O.txt": ("squeue", "--noheader", "--all", "-O", _COLUMNS),
    "sinfo.txt": ("sinfo", "--all"),
    "sinfo-nodes.txt": ("sinfo", "--all", "-N", "-o", "%N|%T|%G|%f|%E|%P"),
    "sdiag.txt": ("sdiag",),
}
"""File → command, while jobs run and wait."""


def record(folder: Path, cgroup: CgroupMode = "auto") -> None:
    """Write the recordings of the installed release into a folder. Raises MiniClusterError."""
    folder.mkdir(parents=True, exist_ok=True)
    with MiniCluster(_spec("jobs", cgroup)) as cluster:
        _record_jobs(cluster, lambda name, text: _write(folder, name, _of_any_machine(text, cluster)))
    shown = [f"== {name}\n{_topology(name, topology)}" for name, topology in TOPOLOGIES.items()]
    _write(folder, "show-topology.txt", "\n".join(shown))


def _spec(name: str, cgroup: CgroupMode, topology: Topology | None = None) -> ClusterSpec:
    lines = ["Licenses=foo:2"]
    if topology is not None and topology.plugin:
        lines.append(f"TopologyPlugin={topology.plugin}")
    return ClusterSpec(
        name=f"recording-{name}",
        cgroup=cgroup,
        gpu_types=GPU_TYPES,
        features={"n1": ("fast",), "n2": ("slow",)},
        extra_conf=tuple(lines),
        added_files={f"etc/{file}": text for file, text in (topology.files if topology else {}).items()},
        boot_timeout_s=300.0,
    )


def _record_jobs(cluster: RunningCluster, write: Write) -> None:
    cluster.run("scontrol", "create", "reservation", "ReservationName=later", "StartTime=now+3hours", "Duration=60",
                "Nodes=n4", "Users=root")  # fmt: skip
    write("submitted.txt", "".join(_submit(cluster, name, options) for name, options in JOBS.items()))
    time.sleep(_SETTLE_S)
    for file, command in SHOWN.items():
        write(file, cluster.run(*command, check=False).stdout)
    write(_JSON, _first_job(cluster.run("squeue", "--json").stdout))
    for file, text in recorded_cgroups(cluster, "n1").items():
        write(file, text)
    cluster.run("scontrol", "requeuehold", "1,2", check=False)
    time.sleep(_SETTLE_S)
    write("show-job-after-requeue.txt", cluster.run(*SHOWN["show-job-detail.txt"]).stdout)
    cluster.run("scancel", "--user=root")
    time.sleep(_SETTLE_S)
    write("show-job-ended.txt", cluster.run(*SHOWN["show-job-detail.txt"]).stdout)


def _first_job(text: str) -> str:
    """Return the answer with the first job only: all of them would be half a megabyte."""
    answer = json.loads(text)
    answer["jobs"] = [job for job in answer["jobs"] if job["job_id"] == 1]
    return json.dumps(answer, indent=1)


def _submit(cluster: RunningCluster, name: str, options: Sequence[str]) -> str:
    """Submit a job. Return a line: its number and name, or the words of a refusal."""
    step = "srun sleep 600" if name == "one" else "sleep 600"
    script = f"#!/bin/sh\n{step}\n"
    done = cluster.run("sbatch", "--parsable", f"--job-name={name}", *options, stdin=script, check=False)
    typed = " ".join(options)
    if done.returncode != 0:
        return f"- {name}: sbatch {typed} REFUSED {' / '.join(done.stderr.strip().splitlines())}\n"
    return f"{done.stdout.strip()} {name}: sbatch {typed}\n"


def _topology(name: str, topology: Topology) -> str:
    """Return what Slurm shows of a topology, or why it does not start with it."""
    try:
        with MiniCluster(_spec(name, "none", topology)) as cluster:
            done = cluster.run("scontrol", "show", "topology", check=False)
            return f"{done.stdout}{done.stderr}".strip()
    except MiniClusterError as error:
        return f"does not start: {str(error).splitlines()[-1]}"


def _of_any_machine(text: str, cluster: RunningCluster) -> str:
    """Return the text with the cluster's folder and the kernel of this machine named as a site's would be."""
    kernel = " ".join((os.uname().sysname, os.uname().release, os.uname().version))
    return text.replace(str(cluster.directory), "/srv/slurm").replace(kernel, "Linux 6.1.0")


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"{text.rstrip()}\n")
