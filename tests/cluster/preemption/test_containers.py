"""Jobs whose ranks run in containers are measured, save on request and resume, with examples/containers/podman_task.sh."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.demo.run import jobpython
from tests.cluster.conftest import skip_unless_possible
from tests.cluster.preemption.returning import STARTS_S, STEPS, Returning, returning

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

ROOT = Path(__file__).parents[3]
_TASK = """#!/bin/sh
# The programs of this machine are the image. podman keeps its files in a home folder, which this user lacks: one for each node.
name=$1
shift
export HOME=$PWD/home-$(hostname)-$SLURM_JOB_ID XDG_RUNTIME_DIR=$PWD/home-$(hostname)-$SLURM_JOB_ID
image=$HOME/image
mkdir -p $image/usr $image/etc $image/proc $image/sys $image/dev $image/tmp $image/run
for folder in bin sbin lib lib64; do ln -s usr/$folder $image/$folder; done
touch $image/etc/hosts $image/etc/resolv.conf $image/etc/passwd $image/etc/group $image/run/.containerenv
exec SCRIPT MOUNTS --ulimit=nofile=1024:1024 --env=PATH="$PATH" --env=NAME="$name" --rootfs $image \\
    sh -c 'echo $$ $(id -u) $SLURM_PROCID >>$NAME.inside; exec "$@"' sh "$@"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Returning]:
    skip_unless_possible(containers=True)
    with returning() as found:
        write_task(found)
        if problem := why_no_container(found):
            pytest.skip(f"podman starts no container for a plain user here: {problem}")
        yield found


def test_a_job_in_containers_is_measured_and_moved_at_the_very_step_it_left(cluster: Returning) -> None:
    # Given two ranks, each in a container that has its own process ids and users
    job = cluster.begin("contained", srun="srun sh task.sh contained")
    cluster.until_trains("contained")
    assert sorted(cluster.said("contained.inside").splitlines()) == ["1 0 0", "1 0 1"], "pid, uid and rank inside"

    # Then the agents of both nodes report its steps
    windows = cluster.until(lambda: cluster.windows(int(job)), "a window of the job", STARTS_S)
    assert (windows[-1].trained.script, windows[-1].shape.nodes) == ("returning_job.py", 2)

    # When it is moved, it saves on request, and resumes elsewhere with the next step
    before = cluster.nodes(job)
    cluster.headway.headway("move", job)
    row = cluster.until_stage(job, "resumed")
    cluster.hurry("contained")
    cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S)
    assert not set(cluster.nodes(job)) & set(before)
    assert cluster.began("contained") == [0, row["step"]]
    assert [step for step, _ in cluster.losses("contained")] == list(range(STEPS))


def test_where_the_node_has_no_agents_folder_the_container_runs_and_is_not_measured(cluster: Returning) -> None:
    job = cluster.begin("alone", steps=20, srun="srun env HEADWAY_JOB_SOCKET=/nonexistent/job.sock sh task.sh alone")
    cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S)
    assert len(cluster.losses("alone")) == 20
    assert not cluster.windows(int(job))


def write_task(cluster: Returning) -> None:
    """Write the script of a task: the documented one, with the folders that this Python needs."""
    packages = [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    folders = dict.fromkeys((Path("/usr"), *jobpython.python_folders(), *packages))
    mounts = " ".join(f"--volume={folder}:{folder}:ro" for folder in folders)
    script = ROOT / "examples/containers/podman_task.sh"
    (cluster.cluster.files.work / "task.sh").write_text(_TASK.replace("SCRIPT", str(script)).replace("MOUNTS", mounts))


def why_no_container(cluster: Returning) -> str:
    """Return why this machine cannot start a container inside a Slurm job; empty if it can."""
    script = "#!/bin/sh\nsrun sh task.sh probe true\n"
    job = cluster.submit(script, "--gpus=1", "--output=probe.log")
    state = cluster.until_state(job, "COMPLETED", "FAILED", timeout_s=STARTS_S)
    return "" if state == "COMPLETED" else cluster.said("probe.log")[-500:]
