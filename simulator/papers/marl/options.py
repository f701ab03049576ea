"""Options of MARL's world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.envs.options import check
from simulator.errors import SettingError
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.marl import INTERVAL_S, JOBS_AN_INTERVAL
from simulator.traces.generators.workload import Workload
from simulator.traces.trace import Trace

FAT_TREE, VL2, BCUBE, RACKS = "fat-tree", "vl2", "bcube", "racks"
NETWORKS = (FAT_TREE, VL2, BCUBE, RACKS)
POWER8, DGX1, TWO_SIZES, MIXED, G4DN = "power8", "dgx1", "two-sizes", "mixed", "g4dn"
ARCHITECTURES = (POWER8, DGX1, TWO_SIZES, MIXED, G4DN)
WHEN_FULL, ALWAYS, NEVER = "full", "always", "never"
BY_JOB, BY_TYPE = "jobs", "types"
PROGRESS, SPEED = "progress", "speed"


@dataclass(frozen=True, kw_only=True)
class MarlOptions:
    """The options. Those without a remark are the paper's; "our choice" marks what it leaves open."""

    network: str = FAT_TREE
    """fat-tree, vl2, bcube, or racks (of the testbed, section VII). A scheduler has a pod, the 5 racks of an aggregation switch,
    two BCube_1, or a rack."""
    k: int | None = None
    """Ports of a fat-tree's switches, aggregation switches of VL2, the highest level of BCube, or the number of racks; None: 20,
    20, 3 and 2."""
    n: int = 6
    """Servers below one switch of BCube, or in a rack; the other networks do not use it."""
    architecture: str = POWER8
    """Servers: power8 (2 CPUs of 8 cores, 2 GPUs each), dgx1 (2 of 16 cores, 4 GPUs each), two-sizes (16 cores with 4 GPUs, and 8
    cores with 2), mixed (20 % of 8 cores with 2 GPUs, 40 % power8, 40 % dgx1), g4dn (the testbed's: 24 cores with 4 GPUs; that they
    are one CPU is our assumption)."""
    single: bool = False
    """True: one scheduler manages the whole data center (section VI-E)."""
    schedulers: int = 0
    """Number of schedulers, each of which has equally many of the partitions; 0: one for each partition. Our choice."""
    traces: Workload | Sequence[Trace] | None = None
    """A workload, from which every episode draws new jobs; or traces, of which every episode draws one; None: the workload that
    the next three options describe."""
    arrivals: str = "daily"
    """Kind of arrivals: daily (in place of Google's trace, our choice), uniform or poisson."""
    jobs_per_interval: float = float(JOBS_AN_INTERVAL)
    """Jobs that arrive in an interval at each 100 servers. The paper's schedulers have 100; scaling is our choice."""
    intervals: int = 10
    """Intervals in which jobs arrive; our choice."""
    profiles: ModelProfiles = field(default_factory=lambda: paper_profiles("marl"))
    """Computing time, gradients, cores and PCIe of each model, and the coefficients of interference. The paper prints none of
    them; `simulator.slowdown.profiles.papers` says what ours follow from."""
    interval_s: float = INTERVAL_S
    """Seconds of a scheduling interval."""
    server_cores: float = 2.0
    """Cores that a parameter server requests and uses: those of the example of section IV-A. Workers: those of their profile."""
    threads: float = 2.0
    """Logical cores of a physical one: a group can be given so many times its cores (hyper-threading, section V-B)."""
    forwarding: str = WHEN_FULL
    """When a task can be forwarded: full (no group of the scheduler has room for it, section III-A), always (section IV-B has an
    action for it in every state), or never."""
    most_forwards: int = 1
    """Times that a task can be forwarded; our choice. A task that no scheduler can place puts its job off to the next interval."""
    concurrent: int = 0
    """N: jobs that a scheduler's state shows; 0: half the GPUs of its partition, at least 8. Our choice."""
    shows: str = BY_JOB
    """Tasks on a GPU group in the observation: jobs (the paper's: of each concurrent job), or types (of the job to be placed, and
    of all others by model type; ours: its size does not depend on the number of jobs)."""
    reward: str = PROGRESS
    """Reward of a decision: progress (the paper's: the share of its steps that the job trained in the interval), or speed (ours:
    the job's speed in the interval relative to computing alone, which does not depend on how long it trains)."""
    max_intervals: int = 1000
    """Intervals after which an episode is cut off; our choice."""

    def __post_init__(self) -> None:
        """Raises SettingError for an impossible value."""
        check("network", self.network, NETWORKS)
        check("architecture", self.architecture, ARCHITECTURES)
        check("arrivals", self.arrivals, ("daily", "uniform", "poisson"))
        check("reward", self.reward, (PROGRESS, SPEED))
        check("shows", self.shows, (BY_JOB, BY_TYPE))
        check("forwarding", self.forwarding, (WHEN_FULL, ALWAYS, NEVER))
        for name in ("jobs_per_interval", "interval_s", "server_cores", "threads"):
            if not 0 < getattr(self, name) < 1e9:
                raise SettingError(f"{name} is {getattr(self, name)!r}; give more than 0 and less than 1e9")
        for name in ("intervals", "max_intervals", "most_forwards"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)!r}; give at least 1")
        if self.schedulers < 0 or (self.single and self.schedulers > 1):
            raise SettingError(
                f"schedulers is {self.schedulers!r} with single={self.single}; give 0 or more, or with single=True leave it out"
            )
        if self.concurrent < 0:
            raise SettingError(f"concurrent is {self.concurrent!r}; give 0 or more")
        if self.traces is not None and not isinstance(self.traces, Workload) and not self.traces:
            raise SettingError("traces is empty; give at least one trace, a workload, or None")
