"""Options of `headway/RlTaps-v0`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from policies.learned.rl_taps.cluster import CLUSTER
from policies.learned.rl_taps.image_columns import PAPER
from simulator.cluster.cluster import Cluster, cluster_of
from simulator.envs.options import check
from simulator.errors import SettingError
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import none_of
from simulator.traces.generators.rl_taps import STEP_S, RLTaps
from simulator.traces.generators.workload import Workload
from simulator.traces.trace import Trace

FULL, NEVER = "full", "never"
THROUGHPUT, SLOWDOWN = "throughput", "slowdown"


@dataclass(frozen=True, kw_only=True)
class RlTapsOptions:
    """The options. Those without a remark are the paper's."""

    traces: Workload | Sequence[Trace] = field(default_factory=RLTaps)
    """A workload, from which every episode draws new jobs; or traces, of which every episode draws one."""
    cluster: Cluster | str = field(default_factory=lambda: cluster_of(CLUSTER))
    """A cluster whose network is a tree, or a text as for `--cluster`."""
    slowdown: Sequence[str] = ()
    """Must be empty or `none`: jobs slow each other down by equations 12 to 15."""
    profiles: ModelProfiles = field(default_factory=lambda: paper_profiles("rl-taps"))
    """Seconds of a step and bytes of the gradients of each network, and the ring's curves."""
    slots: int = PAPER.slots
    """N."""
    widest: int = PAPER.widest
    """Most GPUs that a job can request."""
    rows: int = PAPER.rows
    """Rows of the image."""
    backlog: int = PAPER.backlog
    """Jobs of the backlog that the image shows. More of them wait too; the paper does not say what happens to them."""
    step_s: float = STEP_S
    """Seconds of a step and of a row."""
    max_steps: int = 1000
    """Tmax."""
    efficiency: float = 0.9
    """Share of a GPU's advertised speed that is reached (equation 10)."""
    reward: str = THROUGHPUT
    """throughput (the paper's, equation 4), or slowdown: minus the sum of 1 / length over the jobs that are there, which adds up to
    minus the sum of their slowdowns (as in DeepRM)."""
    idle_weight: float = 1.0
    """Weight of the penalty of equation 5. The paper does not give the weights."""
    fewer_weight: float = 1.0
    """Weight of the penalty of equation 6."""
    preemption: str = FULL
    """full: every step assigns all GPUs anew. never: a job keeps its GPUs until its end, leaves its slot when it starts, and
    equation 6 does not apply."""
    restart_s: float = 0.0
    """Seconds that a job loses when its GPUs change, or when it resumes after a pause. The paper charges nothing."""

    def __post_init__(self) -> None:
        """Raises SettingError for an impossible value."""
        check("preemption", self.preemption, (FULL, NEVER))
        check("reward", self.reward, (THROUGHPUT, SLOWDOWN))
        for name in ("slots", "widest", "rows", "backlog", "max_steps"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)!r}; give at least 1")
        if not 0 < self.step_s < 1e9:
            raise SettingError(f"step_s is {self.step_s!r}; give seconds, more than 0 and less than 1e9")
        if not 0 < self.efficiency <= 1:
            raise SettingError(f"efficiency is {self.efficiency!r}; give more than 0, at most 1")
        if not 0 <= self.restart_s <= self.step_s:
            raise SettingError(f"restart_s is {self.restart_s!r}; give seconds, at most the {self.step_s:g} of a step")
        if min(self.idle_weight, self.fewer_weight) < 0:
            raise SettingError("a weight of a penalty is negative; give 0 or more")
        if not none_of(self.slowdown):
            raise SettingError(
                f"slowdown is {self.slowdown!r}; leave it out: this environment has the paper's own (equations 12 to 15)"
            )
        if not isinstance(self.traces, Workload) and not self.traces:
            raise SettingError("traces is empty; give at least one trace, or a workload")
