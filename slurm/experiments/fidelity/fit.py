"""Parameters of the simulator, fitted from jobs that ran alone. No replay is used here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from simulator.slowdown.profiles.model_profiles import ModelProfile
from slurm.experiments.fidelity.mix import TrainingJob
from slurm.experiments.fidelity.records import Isolated


@dataclass(frozen=True, slots=True)
class Alone:
    """The behaviour of a job without neighbours. Times in seconds."""

    latency_s: float
    """Time from submission until it has its nodes, on an idle cluster."""
    run_s: float
    profile: ModelProfile
    """Profile of the job, not only of its model: constant time is spread over the job's own steps."""


class Fit:
    """Profiles by kind and nodes."""

    def __init__(self, isolated: Sequence[Isolated], nic_bytes_s: float) -> None:
        self._rows = {(row.kind, row.nodes): row for row in isolated}
        self._nic_bytes_s = nic_bytes_s
        self.latency_s = fmean(row.run.start_s - row.run.submit_s for row in isolated)

    def alone(self, job: TrainingJob) -> Alone:
        """Return the fitted behaviour of this job."""
        row = self._rows[job.kind.name, job.nodes]
        run_s = row.run.fixed_s + job.steps * row.run.step_s
        return Alone(self.latency_s, run_s, self._profile(row, job.steps))

    def overlap(self, row: Isolated) -> tuple[float, float]:
        """Return the seconds of communication in a step, and the reached share of its possible overlap with the backward pass."""
        if row.nodes == 1:
            return 0.0, 0.0
        compute = self._rows[row.kind, 1].run
        communicate_s = row.bytes_per_step / self._nic_bytes_s
        most_s = min(compute.step_s - compute.forward_s, communicate_s)
        hidden_s = compute.step_s + communicate_s - row.run.step_s
        return communicate_s, max(0.0, min(1.0, hidden_s / most_s))

    def _profile(self, row: Isolated, steps: int) -> ModelProfile:
        compute = self._rows[row.kind, 1].run
        _, overlap = self.overlap(row)
        sending_s = row.fixed_bytes / self._nic_bytes_s
        other_s = (self.latency_s + max(0.0, row.run.fixed_s - sending_s)) / steps
        passes = 2 * (row.nodes - 1) / row.nodes
        return ModelProfile(
            compute_s=compute.step_s + other_s,
            bytes=(row.bytes_per_step + row.fixed_bytes / steps) / passes if row.nodes > 1 else 0.0,
            overlap=overlap,
            hiding=(compute.step_s - compute.forward_s) / (compute.step_s + other_s),
        )
