"""The mini-cluster boots, leaves nothing behind however it ends, and runs beside others."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm.minicluster import teardown
from slurm.minicluster.cluster import AlreadyRunningError, ClusterSpec, MiniCluster, MiniClusterError
from slurm.minicluster.host.network import NetworkNames
from slurm.minicluster.record import RUNTIME_ROOT, RecordStore
from slurm.minicluster.spec import STATE_ROOT
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.minicluster.commands import (
    CLI,
    Boot,
    output_of,
    state_of,
    submit,
    traces,
    wait_for,
)


@pytest.fixture
def name() -> Iterator[str]:
    """A name for a cluster that the test boots by other ways than the fixture; taken down in any case."""
    skip_unless_possible()
    name = unique_name()
    yield name
    with contextlib.suppress(MiniClusterError):
        teardown.down(name)


# ---- leaving nothing behind


def test_down_leaves_nothing(name: str) -> None:
    # Given a cluster with a running job, of which much is to be seen
    cluster = MiniCluster(ClusterSpec(name=name, nodes=2, gpus=2, rate="100mbit"))
    with cluster:
        job = submit(cluster, "--nodes=2", script="srun sleep 600")
        wait_for(lambda: state_of(cluster, job) == "RUNNING", "job runs")
        kinds = {trace.split()[0] for trace in traces(name)}
        assert kinds >= {"netns", "link", "mount", "file", "process"}
    # Then nothing is
    assert traces(name) == []


def test_a_folder_of_ones_own_is_left_empty(name: str) -> None:
    directory = STATE_ROOT.parent / name
    directory.mkdir()
    try:
        with MiniCluster(ClusterSpec(name=name, nodes=1, gpus=0, directory=directory)) as cluster:
            assert cluster.slurm_conf.is_relative_to(directory)
        assert list(directory.iterdir()) == []
        (directory / "precious").touch()
        with pytest.raises(MiniClusterError, match=r"holds files that do not belong to a mini-cluster"):
            MiniCluster(ClusterSpec(name=name, directory=directory)).up()
        assert [path.name for path in directory.iterdir()] == ["precious"]
    finally:
        (directory / "precious").unlink(missing_ok=True)
        directory.rmdir()
    assert traces(name) == []


def test_a_folder_in_use_is_refused_to_another_cluster(name: str) -> None:
    with MiniCluster(ClusterSpec(name=name, nodes=1, gpus=0)) as cluster:
        other = MiniCluster(ClusterSpec(name=unique_name(), nodes=1, gpus=0, directory=cluster.directory / "work"))
        with pytest.raises(MiniClusterError, match=rf"mini-cluster {name} has its files in"), other:
            pass
        assert (cluster.directory / "work").exists()
        cluster.wait_idle()


def test_a_boot_that_fails_says_why_and_leaves_nothing(name: str) -> None:
    with pytest.raises(MiniClusterError, match=r"slurmctld ended: .*TRES gres/nonsense"):
        MiniCluster(ClusterSpec(name=name, nodes=1, extra_conf=("AccountingStorageTRES=gres/nonsense",))).up()
    assert traces(name) == []


def test_a_disk_that_cannot_be_written_is_an_error_with_its_reason(name: str) -> None:
    folder_and_file = {"etc/notes": "", "etc/notes/more": ""}
    with pytest.raises(MiniClusterError, match=rf"mini-cluster {name}: .*etc/notes"):
        MiniCluster(ClusterSpec(name=name, nodes=1, gpus=0, added_files=folder_and_file)).up()
    assert traces(name) == []


STAGES: dict[str, Callable[[str], bool]] = {
    "record written": lambda name: (RUNTIME_ROOT / f"{name}.json").exists(),
    "namespaces made": lambda name: len(list(Path("/run/netns").glob(NetworkNames(name).netns("*")))) >= 3,
    "files written": lambda name: (STATE_ROOT / name / "etc").exists(),
    "hosts started": lambda name: (STATE_ROOT / name / "log" / "n2.init.log").exists(),
    "munge answers": lambda name: (STATE_ROOT / name / "run" / "munge.socket").exists(),
    "slurmctld started": lambda name: (STATE_ROOT / name / "log" / "slurmctld.log").exists(),
    "slurmd started": lambda name: (STATE_ROOT / name / "log" / "n2.slurmd.log").exists(),
}


def start_boot(name: str, nodes: int = 3) -> subprocess.Popen[bytes]:
    argv = [*CLI, "up", "--name", name, "--nodes", str(nodes), "--gpus", "2", "--rate", "100mbit"]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("stage", STAGES)
def test_after_a_kill_in_the_middle_of_a_boot_down_leaves_nothing(name: str, stage: str) -> None:
    with start_boot(name) as boot:
        wait_for(lambda: STAGES[stage](name), stage, interval_s=0.001, most_s=0.001)
        boot.kill()
    assert "name" in json.loads(
        subprocess.run([*CLI, "down", "--name", name, "--json"], capture_output=True, check=True).stdout
    )
    assert traces(name) == []


@pytest.mark.parametrize("stage", ["namespaces made", "slurmctld started"])
def test_ctrl_c_in_the_middle_of_a_boot_leaves_nothing(name: str, stage: str) -> None:
    with start_boot(name, nodes=10) as boot:  # so many that the boot is not over before a busy machine sees it begin
        wait_for(lambda: STAGES[stage](name), stage, interval_s=0.001, most_s=0.001)
        boot.send_signal(signal.SIGINT)
        assert boot.wait(90) == 128 + signal.SIGINT
    assert traces(name) == []


def test_the_next_boot_cleans_up_after_an_owner_that_was_killed(name: str) -> None:
    # Given a program that has a cluster, with a job, and is killed
    program = (
        "import sys, time\nfrom slurm.minicluster.cluster import ClusterSpec, MiniCluster\n"
        f"with MiniCluster(ClusterSpec(name={name!r}, nodes=2, gpus=2)) as cluster:\n"
        "    cluster.run('sbatch', '--output=/dev/null', '--wrap', 'sleep 600')\n"
        "    print('up', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        held = RecordStore().read(name)
        owner.kill()
    assert held is not None
    # When the name is used again
    with MiniCluster(ClusterSpec(name=name, nodes=1, gpus=1)) as cluster:
        # Then the earlier cluster has gone, and the new one is clean
        assert not held.has_running_host()
        assert cluster.run("squeue", "-h").stdout == ""
    assert traces(name) == []


# ---- machines with routes of their own


def with_routes(*routes: str, command: str, words: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run commands of sh, with "$@" for the words, in a network namespace that has these routes."""
    skip_unless_possible()
    lines = ["ip link set lo up", *(f"ip route add blackhole {route}" for route in routes), command]
    argv = ["unshare", "--net", "sh", "-c", " && ".join(lines), "sh", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=240)


def test_a_machine_with_a_route_to_all_of_10_boots_on_another_subnet(name: str) -> None:
    up_and_down = f'"$@" up --name {name} --nodes 1 --gpus 0 --json && "$@" down --name {name}'
    done = with_routes("10.0.0.0/8", "0.0.0.0/1", "128.0.0.0/1", command=up_and_down, words=CLI)
    assert json.loads(done.stdout.splitlines()[0])["host_address"].startswith(("198.18.", "198.19."))
    assert traces(name) == []


def test_a_machine_without_a_free_subnet_has_the_demonstration_emulated() -> None:
    ask = "import slurm.demo.show as demo; print(demo.obstacles('demo'))"
    routes = ("10.0.0.0/8", "172.16.0.0/12", "100.64.0.0/10", "198.18.0.0/15")
    done = with_routes(*routes, command='"$@"', words=(sys.executable, "-c", ask))
    assert "no free /24 in 10.77.0.0/16, 198.18.0.0/15" in done.stdout
    assert with_routes(*routes[1:], command='"$@"', words=(sys.executable, "-c", ask)).stdout == "[]\n"


# ---- more than one


def test_two_of_one_name_refuse_each_other_and_say_who(name: str) -> None:
    with MiniCluster(ClusterSpec(name=name, nodes=1, gpus=0)) as cluster:
        with pytest.raises(AlreadyRunningError, match=rf"process {os.getpid()} \("):
            MiniCluster(ClusterSpec(name=name, nodes=1, gpus=0)).up()
        refused = subprocess.run([*CLI, "down", "--name", name], capture_output=True, text=True, check=False)
        assert refused.returncode == 1
        assert f"process {os.getpid()}" in refused.stderr
        cluster.wait_idle()  # it has not suffered


def test_clusters_of_different_names_run_at_once(boot_minicluster: Boot) -> None:
    clusters = [boot_minicluster(nodes=2, gpus=1, cgroup=cgroup) for cgroup in ("auto", "none")]
    jobs = [submit(cluster, "--nodelist=n2", script="echo $SLURM_CLUSTER_NAME") for cluster in clusters]
    outputs = [output_of(cluster, job).strip() for cluster, job in zip(clusters, jobs, strict=True)]
    assert outputs == [cluster.name.replace("-", "_") for cluster in clusters]
    assert len({cluster.host_address for cluster in clusters}) == 2


def test_the_command_line_shows_a_cluster_from_its_boot_to_its_end(name: str) -> None:
    def call(*words: str) -> dict[str, Any]:
        done = subprocess.run([*CLI, *words, "--name", name, "--json"], capture_output=True, text=True, check=True)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    facts = call("up", "--nodes", "2", "--gpus", "1", "--rate", "1gbit")
    assert facts["nodes"] == ["n1", "n2"]
    again = subprocess.run([*CLI, "up", "--name", name], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "already up" in again.stderr

    (cluster,) = call("status")["clusters"]
    assert (cluster["phase"], cluster["nodes"]) == ("up", {"n1": "idle", "n2": "idle"})
    attached = MiniCluster.attach(name)
    attached.crash_node("n2")
    (cluster,) = call("status")["clusters"]
    assert (cluster["phase"], cluster["nodes"]["n2"]) == ("broken", "crashed")
    attached.boot_node("n2")

    # a daemon is restarted and keeps its jobs; a command runs on a host, with its own options and exit status
    before = attached.slurmctld_pid
    attached.run("sbatch", "--hold", "--wrap", "true")
    assert call("restart", "slurmctld")["daemon"] == "slurmctld"
    assert attached.slurmctld_pid != before
    assert "JobHeldUser" in attached.run("squeue", "--noheader", "--format=%r").stdout
    attached.kill_slurmd("n1")
    assert call("restart", "n1")["daemon"] == "n1"
    assert attached.slurmd_pid("n1")

    def on(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*CLI, *words], capture_output=True, text=True, check=False)

    assert on("exec", "--name", name, "n1", "--", "uname", "-n").stdout == "n1\n"
    assert on("exec", "--name", name, "n2", "sh", "-c", "exit 7").returncode == 7
    assert on("exec", "--name", name, "n9", "--", "true").returncode == 1
    as_daemon = on(
        "exec", "--name", name, "--user", "daemon", "n1", "--", "sh", "-c", "echo $USER $LOGNAME $HOME; id -un"
    )
    assert as_daemon.stdout == f"daemon daemon {pwd.getpwnam('daemon').pw_dir}\ndaemon\n"
    unknown = on("restart", "--name", name, "slurmrestd")
    assert (unknown.returncode, "give slurmctld, slurmdbd or one of n1, n2" in unknown.stderr) == (1, True)
    assert "up --accounting" in on("restart", "--name", name, "slurmdbd").stderr

    assert call("down") == {"name": name, "down": True}
    assert traces(name) == []
