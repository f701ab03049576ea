"""Measurements and topology that go into the next snapshot for policies, as those that measure them have set them last."""

from __future__ import annotations

from controller.observe.model_profiles import KnownModels
from controller.profiles.current import NOTHING, Known
from controller.profiles.racks import ONE_RACK, Racks


class Knowledge:
    """Measurements and topology beside Slurm's own snapshot. Invariant: values are replaced, never changed."""

    def __init__(self) -> None:
        self.measured: Known = NOTHING
        """Contention of running jobs."""
        self.models: KnownModels | None = None
        """Profiles of models; None: nothing was measured yet."""
        self.racks: Racks = ONE_RACK
        """Racks and uplinks of the nodes."""

    def set_measured(self, measured: Known, models: KnownModels | None) -> None:
        """Set the contention of running jobs and the profiles of models; they are part of the next snapshot."""
        self.measured = measured
        self.models = models

    def set_topology(self, racks: Racks) -> None:
        """Set the rack topology; it is part of the next snapshot."""
        self.racks = racks
