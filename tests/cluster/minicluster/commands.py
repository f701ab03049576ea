"""Helpers for tests of the mini-cluster: submit, wait, and find everything that belongs to a cluster."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from slurm.minicluster.cluster import MiniCluster
from slurm.minicluster.host.network import NetworkNames
from slurm.minicluster.record import RUNTIME_ROOT
from slurm.minicluster.spec import STATE_ROOT
from slurm.processes import wait_until

Boot = Callable[..., MiniCluster]
CLI = (sys.executable, "-m", "slurm.cli.app")


def wait_for(
    condition: Callable[[], bool], what: str, timeout_s: float = 60.0, interval_s: float = 0.05, most_s: float = 0.5
) -> None:
    """Poll until the condition holds; the pauses grow from `interval_s` to `most_s`."""
    assert wait_until(condition, timeout_s, interval_s, most_s), f"{what}: not in {timeout_s} s"


def traces(name: str, directory: Path | None = None) -> list[str]:
    """Return everything on this machine that belongs to a cluster of that name."""
    names = NetworkNames(name)
    directory = directory or STATE_ROOT / name
    found = [f"netns {entry.name}" for entry in Path("/run/netns").glob(names.netns("*"))]
    found += [f"link {entry.name}" for entry in Path("/sys/class/net").iterdir() if entry.name == names.host_link]
    found += [f"mount {line}" for line in Path("/proc/mounts").read_text(errors="replace").splitlines() if name in line]
    # Not by glob, which raises when a cgroup of another cluster is removed meanwhile
    found += [f"cgroup {path}" for path, *_ in os.walk("/sys/fs/cgroup") if Path(path).name == f"headway-{name}"]
    found += [f"file {path}" for path in (directory, *RUNTIME_ROOT.glob(f"{name}.*")) if path.exists()]
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, NotADirectoryError):
            command = (entry / "cmdline").read_bytes()
            if entry.name.isdigit() and str(directory).encode() in command:
                found.append(f"process {entry.name} {command!r}")
    return found


def submit(cluster: MiniCluster, *options: str, script: str, user: str | None = None) -> str:
    done = cluster.run(
        "sbatch", "--parsable", "--output=job-%j.out", *options, stdin=f"#!/bin/sh\n{script}\n", user=user
    )
    return done.stdout.strip()


def state_of(cluster: MiniCluster, job: str) -> str:
    text = cluster.run("scontrol", "-o", "show", "job", job).stdout
    return text.split("JobState=")[1].split()[0]


def output_of(cluster: MiniCluster, job: str) -> str:
    wait_for(lambda: state_of(cluster, job) == "COMPLETED", f"job {job} completes")
    return (cluster.directory / "work" / f"job-{job}.out").read_text()


def saved_jobs(cluster: MiniCluster) -> str:
    """Return the jobs that slurmctld has saved."""
    with contextlib.suppress(FileNotFoundError):  # it is just being replaced
        return (cluster.directory / "state" / "job_state").read_text(errors="replace")
    return ""


def node_state(cluster: MiniCluster, node: str) -> str:
    return cluster.node_states()[node]
