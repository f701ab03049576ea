"""Specification of a mini-cluster: everything that a caller can choose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slurm.errors import SpecError

CgroupMode = Literal["auto", "v1", "v2", "none"]
"""Version of the cgroups in which slurmd contains jobs. `auto` takes v1 or v2 if it works on this machine, else none."""

STATE_ROOT = Path("/var/lib/headway-minicluster")
"""Default parent folder: the files of a cluster are in a folder of its name in it."""

ACCOUNT = "lab"
"""Account that a cluster with accounting has after the boot. Its user is root."""

MAX_NODES = 200
"""A cluster has one /24 for the bridge, slurmctld and the nodes."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)bit")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./+@,=-]*")
_FEATURE = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """One partition. The first one of a cluster is the default partition."""

    name: str
    nodes: tuple[str, ...] = ()
    """Names of its nodes; empty for all nodes."""
    options: str = "MaxTime=INFINITE"
    """Further words of the partition line in slurm.conf: "MaxTime=60 PriorityTier=2"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster to boot. Construction checks every field, and raises SpecError that names the wrong one."""

    name: str = "headway"
    """Name of the cluster on this machine; it has one owner at a time. Lower-case letters, digits and hyphens."""
    nodes: int = 4
    """Nodes n1, n2, ...; 1 to 200."""
    gpus: int = 8
    """Fake GPUs per node; 0 for none."""
    cpus: int = 64
    """CPUs that each node reports to Slurm; the machine need not have them."""
    memory_mib: int = 256_000
    """Memory that each node reports to Slurm."""
    rate: str | None = None
    """Bandwidth of the NIC of each node in both directions, as tc writes it ("200mbit"); None for no limit."""
    cgroup: CgroupMode = "auto"
    """Cgroups in which slurmd contains jobs."""
    directory: Path | None = None
    """Folder of the cluster's files: new, empty, or of an earlier mini-cluster. Slurm's user must be able to enter it."""
    job_submit_lua: Path | None = None
    """Script that is installed as job_submit.lua, with JobSubmitPlugins=lua."""
    prolog_slurmctld: Path | None = None
    """PrologSlurmctld: run by slurmctld as SlurmUser when a job starts."""
    epilog_slurmctld: Path | None = None
    """EpilogSlurmctld: run by slurmctld as SlurmUser when a job ends."""
    task_prolog: Path | None = None
    """TaskProlog: run as the user before each task and before the batch script."""
    added_files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Path below the cluster's folder → content of a file that is there before the first daemon starts, and that every user may
    read and execute. The hooks may be such files."""
    extra_conf: tuple[str, ...] = ()
    """Lines for slurm.conf. "Key=Value" replaces the mini-cluster's own line for that key."""
    partitions: tuple[PartitionSpec, ...] = (PartitionSpec("dl"),)
    """Partitions; at least one."""
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node name → features of the node."""
    scheduler_parameters: str = "batch_sched_delay=0,sched_interval=5,sched_min_interval=0,bf_interval=5"
    """SchedulerParameters. With the default, jobs start as soon as slurmctld can start them."""
    indexed_gpu_types: bool = True
    """True for one GRES type per GPU index (g0, g1, ...), so that a job can request exact GPUs; False for untyped GPUs."""
    gpu_types: tuple[str, ...] = ()
    """GRES type of each GPU of a node ("a100", "a100", "1g.10gb"), in place of one type per index; empty for none."""
    shards: int = 0
    """Shards of the GPUs of a node (gres/shard), in equal parts; 0 for none."""
    accounting: bool = False
    """Start slurmdbd with its own MariaDB, so that Slurm enforces limits (associations, QOS). Users then need an association: root
    has one in the account `lab`, others get one by `sacctmgr`. The boot takes some seconds longer."""
    slurm_user: str = "slurm"
    """SlurmUser: the user that Debian's packages create, or root."""
    backup: str = ""
    """Node whose host is a second SlurmctldHost in slurm.conf; empty for none. Its slurmctld is started with `start_on`."""
    boot_timeout_s: float = 120.0
    """Longest time until all nodes are idle."""

    def __post_init__(self) -> None:
        """Refuse a cluster that cannot be built."""
        _require(bool(_NAME.fullmatch(self.name)), "name", self.name, "lower-case letters, digits, hyphens; at most 31")
        _require(1 <= self.nodes <= MAX_NODES, "nodes", self.nodes, f"1 to {MAX_NODES}")
        _require(0 <= self.gpus <= 64, "gpus", self.gpus, "0 to 64")
        _require(1 <= self.cpus <= 1024, "cpus", self.cpus, "1 to 1024")
        _require(self.memory_mib >= 1, "memory_mib", self.memory_mib, "at least 1")
        _require(self.cgroup in {"auto", "v1", "v2", "none"}, "cgroup", self.cgroup, "auto, v1, v2 or none")
        _require(len(self.gpu_types) in {0, self.gpus}, "gpu_types", self.gpu_types, "one type for each GPU")
        _require(self.shards >= 0 and (not self.shards or self.gpus > 0), "shards", self.shards, "0, or more with GPUs")
        if self.rate is not None:
            parse_rate(self.rate)
        plain = _PLAIN_PATH.fullmatch(str(self.home)) is not None
        _require(plain, "directory", str(self.home), "a path of letters, digits and ./_+@,=-, as slurm.conf names it")
        _require(bool(self.partitions), "partitions", self.partitions, "at least one")
        known = set(self.node_names)
        for partition in self.partitions:
            _require(
                set(partition.nodes) <= known, f"partitions[{partition.name}]", partition.nodes, "nodes of this cluster"
            )
        _require(self.backup in {"", *known}, "backup", self.backup, "a node of this cluster")
        for node, features in self.features.items():
            _require(node in known, "features", node, "nodes of this cluster")
            _require(
                all(_FEATURE.fullmatch(f) for f in features), f"features[{node}]", features, "letters, digits, _ . -"
            )
        added = {self.home / name for name in self.added_files}
        for hook in ("job_submit_lua", "prolog_slurmctld", "epilog_slurmctld", "task_prolog"):
            path: Path | None = getattr(self, hook)
            _require(path is None or path in added or path.is_file(), hook, path, "an existing file")

    @property
    def node_names(self) -> tuple[str, ...]:
        """n1, n2, ..."""
        return tuple(f"n{i}" for i in range(1, self.nodes + 1))

    @property
    def home(self) -> Path:
        """Folder of the cluster's files, absolute."""
        return (self.directory or STATE_ROOT / self.name).absolute()


def parse_rate(text: str) -> int:
    """Return the bits per second of a rate as tc writes it: "200mbit" is 200,000,000. Raises SpecError."""
    match = _RATE.fullmatch(text)
    bits = round(float(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}[match[2]]) if match else 0
    _require(8_000 <= bits <= 400_000_000_000, "rate", text, "a rate such as 200mbit, 8kbit to 400gbit")
    return bits


def _require(condition: bool, key: str, value: object, wanted: str) -> None:
    if not condition:
        raise SpecError(f"mini-cluster: {key} = {value!r}: must be {wanted}")
