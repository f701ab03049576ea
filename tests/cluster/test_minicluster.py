"""The mini-cluster itself: it boots, breaks, mends and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm.minicluster import teardown
from slurm.minicluster.cluster import AlreadyRunningError, ClusterSpec, MiniCluster, MiniClusterError, PartitionSpec
from slurm.minicluster.host.network import NetworkNames
from slurm.minicluster.record import RUNTIME_ROOT, RecordStore
from slurm.minicluster.spec import STATE_ROOT
from tests.cluster.conftest import skip_unless_possible, unique_name

Boot = Callable[..., MiniCluster]
CLI = (sys.executable, "-m", "slurm.minicluster.cli")


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60.0, interval_s: float = 0.05) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in {timeout_s} s"
        time.sleep(interval_s)


def traces(name: str, directory: Path | None = None) -> list[str]:
    """Everything on this machine that belongs to a cluster of that name."""
    names = NetworkNames(name)
    directory = directory or STATE_ROOT / name
    found = [f"netns {entry.name}" for entry in Path("/run/netns").glob(names.netns("*"))]
    found += [f"link {entry.name}" for entry in Path("/sys/class/net").iterdir() if entry.name == names.host_link]
    found += [f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if name in line]
    # Not by glob: it raises where a cgroup of another cluster goes while it looks
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
    """What slurmctld has written down of jobs."""
    with contextlib.suppress(FileNotFoundError):  # it is just being replaced
        return (cluster.directory / "state" / "job_state").read_text(errors="replace")
    return ""


def node_state(cluster: MiniCluster, node: str) -> str:
    return cluster.node_states()[node]


@pytest.fixture
def name() -> Iterator[str]:
    """A name for a cluster that the test boots by other ways than the fixture; taken down in any case."""
    skip_unless_possible()
    name = unique_name()
    yield name
    with contextlib.suppress(MiniClusterError):
        teardown.down(name)


# ---- using it


def test_a_batch_job_sees_its_own_gpus(minicluster: MiniCluster, cluster_user: str) -> None:
    job = submit(minicluster, "--gres=gpu:3", script="hostname; echo $CUDA_VISIBLE_DEVICES; whoami", user=cluster_user)
    assert output_of(minicluster, job).splitlines() == ["n1", "0,1,2", cluster_user]
    minicluster.wait_idle()


def test_exact_gpus_can_be_asked_for_by_type(minicluster: MiniCluster) -> None:
    job = submit(minicluster, "--nodelist=n3", "--gres=gpu:g2:1,gpu:g5:1", script="hostname; echo $SLURM_JOB_GPUS")
    assert output_of(minicluster, job).splitlines() == ["n3", "2,5"]
    minicluster.wait_idle()


def test_a_step_runs_on_several_nodes_that_know_each_other_by_name(minicluster: MiniCluster) -> None:
    job = submit(
        minicluster, "--nodes=4", "--gpus-per-node=1", script="srun hostname | sort | tr '\\n' ' '; getent hosts n4"
    )
    lines = output_of(minicluster, job)
    assert lines.startswith("n1 n2 n3 n4 ")
    assert lines.rstrip().endswith("n4")
    minicluster.wait_idle()


def test_each_host_has_its_own_name_address_and_processes(minicluster: MiniCluster) -> None:
    hosts = (*minicluster.node_names, "ctl")
    assert [minicluster.run_on(host, "hostname").stdout.strip() for host in hosts] == list(hosts)
    addresses = [
        minicluster.run_on(host, "ip", "-br", "-4", "address", "show", "eth0").stdout.split()[2] for host in hosts
    ]
    assert len(set(addresses)) == len(hosts)
    seen = minicluster.run_on("n1", "sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null; true").stdout.split()
    assert seen.count("slurmd") == 1
    assert "slurmctld" not in seen
    assert minicluster.run_on("n2", "ls", "/sys/class/net").stdout.split() == ["eth0", "lo"]


def test_a_nic_carries_no_more_than_its_rate(boot_minicluster: Boot) -> None:
    # Given two nodes at 40 Mbit/s
    cluster = boot_minicluster(nodes=2, gpus=1, rate="40mbit")
    before = cluster.link_bytes("n1"), cluster.link_bytes("n2")
    size = 4_000_000
    receive = "import socket; s = socket.create_server(('', 9000)); c = s.accept()[0]\nwhile c.recv(65536): pass"
    send = (
        "import socket, time\n"
        "for _ in range(600):\n"
        "    try: c = socket.create_connection(('n2', 9000)); break\n"
        "    except OSError: time.sleep(0.05)\n"
        f"began = time.monotonic(); c.sendall(bytes({size})); c.shutdown(socket.SHUT_WR); c.recv(1)\n"
        "print(time.monotonic() - began)"
    )
    # When one sends 4 MB to the other
    receiver = cluster.run_on("n2", "sh", "-c", f'{sys.executable} -c "$1" >/dev/null 2>&1 &', "sh", receive)
    assert receiver.returncode == 0
    took = float(cluster.run_on("n1", sys.executable, "-c", send, timeout=60).stdout)
    # Then it takes at least what the wire needs, less the burst, and the counters have seen it
    assert took >= (size - 2 * 256 * 1024) * 8 / 40e6
    assert cluster.link_bytes("n1").sent - before[0].sent >= size
    assert cluster.link_bytes("n2").received - before[1].received >= size


def test_hooks_partitions_and_features(boot_minicluster: Boot, tmp_path: Path, cluster_user: str) -> None:
    # Given a Lua plugin that writes to a pipe on the shared file system, two partitions and a feature
    pipe = STATE_ROOT.parent / f"{unique_name()}.pipe"
    lua = tmp_path / "job_submit.lua"
    lua.write_text(
        "function slurm_job_submit(job, parts, uid)\n"
        f'  local pipe = io.open("{pipe}", "r+"); pipe:write("submit\\n"); pipe:close()\n'
        '  job.comment = "seen"\n  return slurm.SUCCESS\nend\n'
        "function slurm_job_modify(job, record, parts, uid) return slurm.SUCCESS end\n"
    )
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        cluster = boot_minicluster(
            nodes=2,
            gpus=2,
            job_submit_lua=lua,
            partitions=(PartitionSpec("dl"), PartitionSpec("short", nodes=("n2",), options="MaxTime=5")),
            features={"n2": ("fast", "ib")},
            extra_conf=("KillWait=7",),
        )
        # When a user submits, asking for the feature
        job = submit(cluster, "--constraint=ib", "--partition=short", script="hostname", user=cluster_user)
        # Then the plugin in slurmctld has reached the pipe, and the job runs where the feature is
        assert os.read(reader, 100) == b"submit\n"
        assert output_of(cluster, job) == "n2\n"
        assert "Comment=seen" in cluster.run("scontrol", "show", "job", job).stdout
        assert "KillWait                = 7 sec" in cluster.run("scontrol", "show", "config").stdout
    finally:
        os.close(reader)
        pipe.unlink()


@pytest.mark.parametrize("cgroup", ["none", "v1", "v2"])
def test_each_cgroup_mode_contains_jobs(boot_minicluster: Boot, cgroup: str) -> None:
    try:
        cluster = boot_minicluster(nodes=1, gpus=2, cgroup=cgroup)
    except MiniClusterError as error:
        pytest.skip(str(error))
    devices = f"for gpu in 0 1; do cat {cluster.directory}/dev/nvidia$gpu; done"
    job = submit(cluster, "--gres=gpu:1", script=f"setsid sleep 600 & \n{devices} 2>&1\ntrue")
    text = output_of(cluster, job)
    if cgroup == "none":  # every device can be opened; a process in a session of its own may outlive its job
        assert text.count("No such device or address") == 2
        return
    assert text.count("No such device or address") == 1  # no driver answers for the job's own GPU
    assert text.count("Operation not permitted") == 1  # the kernel refuses the other
    every = "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$file; echo; done 2>/dev/null; true"
    wait_for(lambda: "sleep 600" not in cluster.run_on("n1", "sh", "-c", every).stdout, "stray processes end")


# ---- breaking and mending it


def test_slurmctld_killed_and_started_again_keeps_its_jobs(boot_minicluster: Boot) -> None:
    cluster = boot_minicluster(nodes=1, gpus=1)
    job = submit(cluster, "--hold", "--job-name=kept", script="true")
    wait_for(lambda: "kept" in saved_jobs(cluster), "slurmctld writes it down, which may take it six seconds")
    first = cluster.slurmctld_pid

    cluster.kill_slurmctld()
    with pytest.raises(MiniClusterError, match="does not run"):
        _ = cluster.slurmctld_pid
    cluster.start_slurmctld()

    assert cluster.slurmctld_pid != first
    assert state_of(cluster, job) == "PENDING"


def test_slurmctld_that_is_stopped_forgets_nothing(boot_minicluster: Boot) -> None:
    cluster = boot_minicluster(nodes=1, gpus=1)
    job = submit(cluster, "--hold", script="true")
    cluster.stop_slurmctld()
    cluster.start_slurmctld()
    assert state_of(cluster, job) == "PENDING"


def test_a_job_outlives_its_slurmd(boot_minicluster: Boot) -> None:
    cluster = boot_minicluster(nodes=1, gpus=1)
    job = submit(cluster, script="echo begun; sleep 3; echo done")
    output = cluster.directory / "work" / f"job-{job}.out"
    wait_for(
        lambda: output.exists() and output.read_text() == "begun\n", "the script runs"
    )  # RUNNING comes before that
    cluster.kill_slurmd("n1")
    cluster.start_slurmd("n1")
    assert output_of(cluster, job) == "begun\ndone\n"


def test_a_crashed_node_is_seen_down_and_comes_back_with_a_boot(boot_minicluster: Boot) -> None:
    cluster = boot_minicluster(nodes=2, gpus=1, extra_conf=("SlurmdTimeout=2",))
    cluster.crash_node("n2")
    with pytest.raises(MiniClusterError, match="is down"):
        cluster.run_on("n2", "true")
    wait_for(lambda: node_state(cluster, "n2").startswith("down"), "slurmctld notices", timeout_s=60)
    cluster.boot_node("n2")
    cluster.wait_idle(60)
    job = submit(cluster, "--nodelist=n2", script="hostname")
    assert output_of(cluster, job) == "n2\n"


def test_a_paused_slurmctld_answers_nobody_until_it_is_resumed(boot_minicluster: Boot) -> None:
    cluster = boot_minicluster(nodes=1, gpus=1)
    cluster.pause("slurmctld")
    with pytest.raises(MiniClusterError, match=r"no answer in 1 s"):
        cluster.run("squeue", timeout=1)
    cluster.resume("slurmctld")
    assert "JOBID" in cluster.run("squeue").stdout


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
        with pytest.raises(MiniClusterError, match=r"holds files that are no mini-cluster's"):
            MiniCluster(ClusterSpec(name=name, directory=directory)).up()
        assert [path.name for path in directory.iterdir()] == ["precious"]
    finally:
        (directory / "precious").unlink(missing_ok=True)
        directory.rmdir()
    assert traces(name) == []


def test_a_boot_that_fails_says_why_and_leaves_nothing(name: str) -> None:
    with pytest.raises(MiniClusterError, match=r"slurmctld ended: .*TRES gres/nonsense"):
        MiniCluster(ClusterSpec(name=name, nodes=1, extra_conf=("AccountingStorageTRES=gres/nonsense",))).up()
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


def start_boot(name: str) -> subprocess.Popen[bytes]:
    argv = [*CLI, "up", "--name", name, "--nodes", "3", "--gpus", "2", "--rate", "100mbit"]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("stage", STAGES)
def test_after_a_kill_in_the_middle_of_a_boot_down_leaves_nothing(name: str, stage: str) -> None:
    with start_boot(name) as boot:
        wait_for(lambda: STAGES[stage](name), stage, interval_s=0.001)
        boot.kill()
    assert "name" in json.loads(
        subprocess.run([*CLI, "down", "--name", name, "--json"], capture_output=True, check=True).stdout
    )
    assert traces(name) == []


@pytest.mark.parametrize("stage", ["namespaces made", "slurmctld started"])
def test_ctrl_c_in_the_middle_of_a_boot_leaves_nothing(name: str, stage: str) -> None:
    with start_boot(name) as boot:
        wait_for(lambda: STAGES[stage](name), stage, interval_s=0.001)
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
        assert not held.holds_anything()
        assert cluster.run("squeue", "-h").stdout == ""
    assert traces(name) == []


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


def test_the_command_line_tells_a_cluster_from_its_boot_to_its_end(name: str) -> None:
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

    assert call("down") == {"name": name, "down": True}
    assert traces(name) == []
