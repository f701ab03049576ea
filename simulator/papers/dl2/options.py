"""Options of `headway/ElasticAllocation-v0`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.cluster.cluster import Cluster
from simulator.engine.settings import Settings
from simulator.envs.options import ROUNDS, EnvOptions, check
from simulator.errors import SettingError
from simulator.papers.dl2.tasks import BALANCED, PACKED
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.dl2 import DL2, MODELS
from simulator.traces.generators.workload import Workload
from simulator.traces.trace import Trace

ENGINE, ANALYTICAL = "engine", "analytical"
SLOT, JOB = "slot", "job"


@dataclass(frozen=True, kw_only=True)
class ElasticOptions(EnvOptions):
    """The options of `headway/ElasticAllocation-v0`."""

    traces: Workload | Sequence[Trace] = field(default_factory=DL2)
    cluster: Cluster | str = "12x8"
    profiles: ModelProfiles = field(default_factory=lambda: paper_profiles("dl2"))
    settings: Settings = field(default_factory=lambda: Settings(preempt_cost_s=0.05))
    round_s: float = 1200.0
    """Seconds of a slot."""
    max_steps: int | None = None
    """Maximum number of steps of an episode; None: 100 slots for each of its jobs."""
    concurrent: int = 40
    """Number J of jobs in a state."""
    types: tuple[str, ...] = MODELS
    """The L models that a state distinguishes."""
    speeds: str = ENGINE
    """engine or analytical."""
    placing: str = BALANCED
    """balanced (the paper's) or packed."""
    cpus_per_gpu: float = 4.0
    """Cores of a node for each of its GPUs."""
    worker_cpus: int = 2
    """Cores of a worker."""
    server_cpus: int = 2
    """Cores of a parameter server."""
    epochs: int = 100
    """Epochs of jobs whose trace gives none."""
    bundle: bool = True
    """Allow the action that gives one worker and one server; False is DL2's ablation "bundle action" (section 6.5.1)."""
    reward: str = SLOT
    """Reward of each action in `action_rewards`: `slot` (equation 1) or `job` (epochs of the action's job only, section 6.5.2)."""
    epoch_error: float = 0.0
    """Relative error of the epochs that users state (figure 16): a job trains (1 + error) or (1 - error) times as many, equally
    likely. The work of jobs stays that of the trace; the state, the rewards and the estimates of policies change."""
    speed_variation: float = 0.0
    """Relative deviation of training speeds (figure 15; 0.273 in figure 4): a job trains (1 + variation) or (1 - variation) times
    as fast as its type, equally likely, with as many epochs. The estimates of policies are those of the type."""

    def __post_init__(self) -> None:
        """Raises SettingError for an impossible value."""
        super().__post_init__()
        check("speeds", self.speeds, (ENGINE, ANALYTICAL))
        check("reward", self.reward, (SLOT, JOB))
        check("placing", self.placing, (BALANCED, PACKED))
        check("decide", self.decide, (ROUNDS,))
        for name in ("concurrent", "worker_cpus", "server_cpus", "epochs"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)!r}; give at least 1")
        for name in ("epoch_error", "speed_variation"):
            if not 0 <= getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)!r}; give a share from 0 to below 1, such as 0.2")
        if not 0 < self.cpus_per_gpu < 1e6:
            raise SettingError(f"cpus_per_gpu is {self.cpus_per_gpu!r}; give a number above 0")
        if self.skip_forced:
            raise SettingError(
                "skip_forced is True; a slot in which nothing can be given is never asked about, leave it out"
            )
