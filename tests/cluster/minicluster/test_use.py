"""The mini-cluster: what jobs and users see on it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from slurm.minicluster.cluster import MiniCluster, MiniClusterError, PartitionSpec
from slurm.minicluster.spec import STATE_ROOT
from tests.cluster.conftest import unique_name
from tests.cluster.minicluster.commands import (
    Boot,
    output_of,
    submit,
    wait_for,
)


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
