"""What a mini-cluster looks like: the one thing that a caller chooses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slurm.errors import SpecError

CgroupMode = Literal["auto", "v1", "v2", "none"]
"""How slurmd contains jobs. `auto` takes v1 or v2 when it works on this machine, else none."""

STATE_ROOT = Path("/var/lib/headway-minicluster")
"""Files of a cluster live in a folder of its name below this one, unless the spec names another."""

ACCOUNT = "lab"
"""With accounting: the account that the cluster has at first. Its user is root."""

MAX_NODES = 200
"""A cluster has one /24: the bridge, the controller and the nodes share it."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)bit")
_FEATURE = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """One partition. The first of a cluster is Slurm's default."""

    name: str
    nodes: tuple[str, ...] = ()
    """Names of its nodes; empty = all."""
    options: str = "MaxTime=INFINITE"
    """More of slurm.conf's partition line, as it stands there: "MaxTime=60 PriorityTier=2"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster to boot. Checked when made: raises SpecError that names the field."""

    name: str = "headway"
    """Names the cluster on this machine: one owner at a time. Lower-case letters, digits and hyphens."""
    nodes: int = 4
    """Nodes n1, n2, ...; 1 to 200."""
    gpus: int = 8
    """Fake GPUs per node; 0 = none."""
    cpus: int = 64
    """CPUs that each node claims; the machine needs not have them."""
    memory_mib: int = 256_000
    """Memory that each node claims."""
    rate: str | None = None
    """Bandwidth of every node's NIC, both ways, as tc writes it ("200mbit"); None = as fast as the kernel copies."""
    cgroup: CgroupMode = "auto"
    """How slurmd contains jobs."""
    directory: Path | None = None
    """Folder of the cluster's files; it must be absent, empty or an earlier mini-cluster's. Slurm's user must be able to enter."""
    job_submit_lua: Path | None = None
    """Copied to where slurmctld looks for job_submit.lua, and JobSubmitPlugins=lua set."""
    prolog_slurmctld: Path | None = None
    """PrologSlurmctld: run by slurmctld as SlurmUser when a job starts."""
    epilog_slurmctld: Path | None = None
    """EpilogSlurmctld: run by slurmctld as SlurmUser when a job ends."""
    task_prolog: Path | None = None
    """TaskProlog: run as the user before each task and before the batch script."""
    extra_conf: tuple[str, ...] = ()
    """Lines for slurm.conf. "Key=Value" takes the place of the mini-cluster's own line for that key."""
    partitions: tuple[PartitionSpec, ...] = (PartitionSpec("dl"),)
    """At least one."""
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node name to its features."""
    scheduler_parameters: str = "batch_sched_delay=0,sched_interval=5,sched_min_interval=0,bf_interval=5"
    """SchedulerParameters. The default starts jobs as soon as slurmctld can."""
    indexed_gpu_types: bool = True
    """One GRES type per GPU index (g0, g1, ...), so that exact GPUs can be asked for; False = untyped GPUs."""
    accounting: bool = False
    """Also slurmdbd with a MariaDB of its own, so that limits hold (associations, QOS). Users need an association then: root
    has one in the account `lab`, others get theirs by `sacctmgr`. The boot takes some seconds more."""
    slurm_user: str = "slurm"
    """SlurmUser. The user that Debian's packages make, or root."""
    boot_timeout_s: float = 120.0
    """Longest time for all nodes to be idle."""

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        _require(bool(_NAME.fullmatch(self.name)), "name", self.name, "lower-case letters, digits, hyphens; at most 31")
        _require(1 <= self.nodes <= MAX_NODES, "nodes", self.nodes, f"1 to {MAX_NODES}")
        _require(0 <= self.gpus <= 64, "gpus", self.gpus, "0 to 64")
        _require(1 <= self.cpus <= 1024, "cpus", self.cpus, "1 to 1024")
        _require(self.memory_mib >= 1, "memory_mib", self.memory_mib, "at least 1")
        _require(self.cgroup in {"auto", "v1", "v2", "none"}, "cgroup", self.cgroup, "auto, v1, v2 or none")
        if self.rate is not None:
            parse_rate(self.rate)
        _require(bool(self.partitions), "partitions", self.partitions, "at least one")
        known = set(self.node_names)
        for partition in self.partitions:
            _require(
                set(partition.nodes) <= known, f"partitions[{partition.name}]", partition.nodes, "nodes of this cluster"
            )
        for node, features in self.features.items():
            _require(node in known, "features", node, "nodes of this cluster")
            _require(
                all(_FEATURE.fullmatch(f) for f in features), f"features[{node}]", features, "letters, digits, _ . -"
            )
        for hook in ("job_submit_lua", "prolog_slurmctld", "epilog_slurmctld", "task_prolog"):
            path: Path | None = getattr(self, hook)
            _require(path is None or path.is_file(), hook, path, "an existing file")

    @property
    def node_names(self) -> tuple[str, ...]:
        """n1, n2, ..."""
        return tuple(f"n{i}" for i in range(1, self.nodes + 1))

    @property
    def home(self) -> Path:
        """Folder of the cluster's files, absolute."""
        return (self.directory or STATE_ROOT / self.name).absolute()


def parse_rate(text: str) -> int:
    """Bits per second of a rate as tc writes it: "200mbit" is 200,000,000. Raises SpecError."""
    match = _RATE.fullmatch(text)
    bits = round(float(match[1]) * {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}[match[2]]) if match else 0
    _require(8_000 <= bits <= 400_000_000_000, "rate", text, "a rate such as 200mbit, 8kbit to 400gbit")
    return bits


def _require(condition: bool, key: str, value: object, wanted: str) -> None:
    if not condition:
        raise SpecError(f"mini-cluster: {key} = {value!r}: must be {wanted}")
