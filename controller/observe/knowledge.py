"""Measurements and topology for the next snapshot of policies, as they were set last."""

from __future__ import annotations

from controller.observe.gpu_layouts import Layouts
from controller.observe.model_profiles import KnownModels
from controller.observe.slurm_order import PriorityFacts
from controller.profiles.current import NO_CONTENTION, ContentionByRun
from controller.profiles.racks import ONE_RACK, Racks
from controller.slurm.configuration.requeue_delay import DEFAULT_S
from controller.slurm.priorities.preemption import PreemptionRules


class Knowledge:
    """Measurements and topology beside Slurm's own snapshot. Invariant: values are replaced, never changed."""

    def __init__(self) -> None:
        self.measured: ContentionByRun = NO_CONTENTION
        """Contention of running jobs."""
        self.models: KnownModels | None = None
        """Profiles of models; None: none was measured yet."""
        self.racks: Racks = ONE_RACK
        """Racks and uplinks of the nodes."""
        self.leaf_switches: int | None = None
        """Leaf switches, or blocks, of the cluster; 0: Slurm has no topology; None: not known."""
        self.priorities: PriorityFacts | None = None
        """Settings and shares behind Slurm's priorities; None: not known."""
        self.requeue_delay_s = DEFAULT_S
        """Longest time by which Slurm delays the begin of a requeued job, seconds; infinite: not known."""

        self.gpu_layouts: Layouts = {}
        """The GPUs inside nodes; empty: not known. Bound: the nodes of the cluster file."""

    def set_measured(self, measured: ContentionByRun, models: KnownModels | None) -> None:
        """Set the contention of running jobs and the profiles of models; they are part of the next snapshot."""
        self.measured = measured
        self.models = models

    def set_priorities(self, priorities: PriorityFacts | None) -> None:
        """Set the settings and shares behind Slurm's priorities; they are used for the next snapshot."""
        self.priorities = priorities

    def set_requeue_delay(self, delay_s: float) -> None:
        """Set the longest time by which Slurm delays the begin of a requeued job, seconds; infinite: not known."""
        self.requeue_delay_s = delay_s

    @property
    def preemption(self) -> PreemptionRules | None:
        """Slurm's rules of preemption; None: it does not preempt, or they are not known."""
        return None if self.priorities is None else self.priorities.preemption

    def set_gpu_layouts(self, layouts: Layouts) -> None:
        """Set the GPUs inside nodes; they are part of the next snapshot."""
        self.gpu_layouts = layouts

    def set_topology(self, racks: Racks) -> None:
        """Set the rack topology; it is part of the next snapshot."""
        self.racks = racks
        self.leaf_switches = len(set(racks.leaf.values()))
