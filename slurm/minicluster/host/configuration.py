"""Slurm's configuration files for a cluster: pure functions from the spec to text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from slurm.minicluster.host.files import ACCOUNTING_DATABASE, ClusterFiles
from slurm.minicluster.host.network import CONTROLLER, Addresses
from slurm.minicluster.spec import ClusterSpec, PartitionSpec

GPU_MAJOR = 120
"""Major device number of the fake GPUs: reserved by the kernel for local use, so that no driver answers."""


def slurm_conf(spec: ClusterSpec, files: ClusterFiles, addresses: Addresses, cgroup: str) -> str:
    """Return the text of slurm.conf. `cgroup` is v1, v2 or none; the caller has resolved auto."""
    settings = _settings(spec, files, addresses, cgroup)
    free_lines = []
    for line in spec.extra_conf:
        key, equals, value = line.partition("=")
        if equals and key.strip() and not key.strip().lower().endswith(("name", "nodes", "set")):
            same = next((known for known in settings if known.lower() == key.strip().lower()), key.strip())
            settings[same] = value.strip()
        else:
            free_lines.append(line)
    lines = [f"{key}={value}" for key, value in settings.items()]
    if spec.backup:
        lines.append(f"SlurmctldHost={spec.backup}({addresses.node(spec.node_names.index(spec.backup))})")
    lines += [_node_line(spec, addresses, index) for index in range(spec.nodes)]
    lines += [_partition_line(spec, partition) for partition in spec.partitions]
    return "\n".join(lines + free_lines) + "\n"


def cluster_name(spec: ClusterSpec) -> str:
    """Return the ClusterName."""
    return spec.name.replace("-", "_")


def _settings(spec: ClusterSpec, files: ClusterFiles, addresses: Addresses, cgroup: str) -> dict[str, str]:
    settings = _daemon_settings(spec, files, addresses) | _job_settings(files, cgroup) | _scheduler_settings(spec)
    if spec.accounting:
        settings |= _accounting_settings(spec, files, addresses)
    return settings | _plugin_settings(spec)


def _daemon_settings(spec: ClusterSpec, files: ClusterFiles, addresses: Addresses) -> dict[str, str]:
    """Identity, authentication, files and logs of slurmctld and the slurmds."""
    return {
        "ClusterName": cluster_name(spec),
        "SlurmctldHost": f"{CONTROLLER}({addresses.controller})",
        "SlurmUser": spec.slurm_user,
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={files.munge_socket}",
        "CredType": "cred/munge",
        "StateSaveLocation": str(files.state),
        "SlurmdSpoolDir": f"{files.spool}/%n",
        "SlurmctldLogFile": str(files.log_of(CONTROLLER)),
        "SlurmdLogFile": f"{files.log}/%n.slurmd.log",
        "SlurmctldPidFile": f"{files.run}/slurmctld.pid",
        "SlurmdPidFile": f"{files.run}/%n.slurmd.pid",
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
        "SlurmdParameters": "config_overrides",
        "SlurmdTimeout": "30",
        "ReturnToService": "2",
        "AccountingStorageType": "accounting_storage/none",
    }


def _job_settings(files: ClusterFiles, cgroup: str) -> dict[str, str]:
    """Settings for the containment, the measurement and the end of jobs on the nodes."""
    contained = cgroup != "none"
    return {
        "ProctrackType": "proctrack/cgroup" if contained else "proctrack/linuxproc",
        "TaskPlugin": "task/cgroup" if contained else "task/none",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "5",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": f"{files.log}/jobcomp.txt",
        "PlugStackConfig": f"{files.etc}/plugstack.conf",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "InactiveLimit": "0",
        "KillWait": "5",
        "MinJobAge": "300",
    }


def _scheduler_settings(spec: ClusterSpec) -> dict[str, str]:
    """Settings for the selection of nodes and the order of the queue."""
    return {
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "DefMemPerCPU": str(max(1, min(1000, spec.memory_mib // spec.cpus))),
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": spec.scheduler_parameters,
        "PriorityType": "priority/basic",
        "JobRequeue": "1",
        "MaxJobCount": "60000",
        "MaxArraySize": "20001",
    }


def _plugin_settings(spec: ClusterSpec) -> dict[str, str]:
    """Settings that are present only where the spec names a GPU, a plugin or a hook."""
    optional = {
        "GresTypes": ("gpu,shard" if spec.shards else "gpu") if spec.gpus else None,
        "JobSubmitPlugins": "lua" if spec.job_submit_lua else None,
        "PrologSlurmctld": spec.prolog_slurmctld,
        "EpilogSlurmctld": spec.epilog_slurmctld,
        "TaskProlog": spec.task_prolog,
    }
    return {
        key: str(value.absolute() if isinstance(value, Path) else value) for key, value in optional.items() if value
    }


def _accounting_settings(spec: ClusterSpec, files: ClusterFiles, addresses: Addresses) -> dict[str, str]:
    counted = {"AccountingStorageTRES": "gres/gpu"} if spec.gpus else {}
    # AccountingStoragePass holds no password here: clients of slurmdbd find munged's socket by it.
    return counted | {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": addresses.controller,
        "AccountingStoragePass": str(files.munge_socket),
        "AccountingStorageEnforce": "limits,qos",
    }


def slurmdbd_conf(spec: ClusterSpec, files: ClusterFiles, addresses: Addresses) -> str:
    """Return the text of slurmdbd.conf. It holds no password, because MariaDB identifies its clients by their user."""
    settings = {
        "DbdHost": CONTROLLER,
        "DbdAddr": addresses.controller,
        "SlurmUser": spec.slurm_user,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={files.munge_socket}",
        "DebugLevel": "info",
        "LogFile": f"{files.log}/slurmdbd.log",
        "PidFile": f"{files.run}/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": spec.slurm_user,
        "StorageLoc": ACCOUNTING_DATABASE,
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _node_line(spec: ClusterSpec, addresses: Addresses, index: int) -> str:
    name = spec.node_names[index]
    sockets = _sockets(spec)
    words = [
        f"NodeName={name} NodeAddr={addresses.node(index)} CPUs={spec.cpus} Boards=1 SocketsPerBoard={sockets}",
        f"CoresPerSocket={spec.cpus // sockets} ThreadsPerCore=1 RealMemory={spec.memory_mib} State=UNKNOWN",
    ]
    if spec.gpus:
        shards = [f"shard:{spec.shards}"] if spec.shards else []
        words.append(f"Gres={','.join([*_gpu_gres(spec), *shards])}")
    if features := spec.features.get(name):
        words.append(f"Feature={','.join(features)}")
    return " ".join(words)


def _gpu_gres(spec: ClusterSpec) -> list[str]:
    types = _gpu_types(spec)
    return [f"gpu:{kind}:{number}" for kind, number in Counter(types).items()] if types else [f"gpu:{spec.gpus}"]


def _gpu_types(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the type of each GPU of a node; empty for untyped GPUs."""
    if spec.gpu_types:
        return spec.gpu_types
    return tuple(f"g{gpu}" for gpu in range(spec.gpus)) if spec.indexed_gpu_types else ()


def _partition_line(spec: ClusterSpec, partition: PartitionSpec) -> str:
    nodes = ",".join(partition.nodes or spec.node_names)
    default = "YES" if partition is spec.partitions[0] else "NO"
    return f"PartitionName={partition.name} Nodes={nodes} Default={default} State=UP {partition.options}".rstrip()


def gres_conf(spec: ClusterSpec, files: ClusterFiles) -> str:
    """Return the text of gres.conf: each socket has half of the GPUs."""
    lines = ["AutoDetect=off"]
    sockets, types = _sockets(spec), _gpu_types(spec)
    for gpu in range(spec.gpus):
        socket = gpu * sockets // spec.gpus
        per_socket = spec.cpus // sockets
        cores = f"{socket * per_socket}-{(socket + 1) * per_socket - 1}" if per_socket > 1 else str(socket)
        kind = f"Type={types[gpu]} " if types else ""
        lines.append(f"Name=gpu {kind}File={files.devices}/nvidia{gpu} Cores={cores}")
    if spec.shards:
        lines.append(f"Name=shard Count={spec.shards}")
    return "\n".join(lines) + "\n"


def cgroup_conf(cgroup: str) -> str:
    """Return the text of cgroup.conf for v1, v2 or none. Only devices are constrained, because cores and memory are not real."""
    if cgroup == "none":
        return "CgroupPlugin=cgroup/v1\n"
    lines = [f"CgroupPlugin=cgroup/{cgroup}", "CgroupMountpoint=/sys/fs/cgroup"]
    lines += ["ConstrainCores=no", "ConstrainRAMSpace=no", "ConstrainSwapSpace=no", "ConstrainDevices=yes"]
    if cgroup == "v2":
        lines.append("IgnoreSystemd=yes")
    return "\n".join(lines) + "\n"


def _sockets(spec: ClusterSpec) -> int:
    return 2 if spec.cpus % 2 == 0 else 1
