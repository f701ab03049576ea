"""Contention sensitivity: how many times slower a job runs than it would alone, and how sure that is. Pure.

CS = ideal / observed throughput, at the shape that the job has. The ideal is, of these, the first that there is:

- ALONE: what this very run, or another run of the job, achieved in windows in which nothing shared its links and hosts;
- STORE: what earlier jobs of the same user, script, model and shape achieved alone;
- PREDICTED: computing time and bytes of its profile over the bandwidth that its links have when free.

Confidence is 1 - the relative error to be expected of the ideal, and errors are those that were measured: the spread of
windows, of jobs, and of past predictions against what came true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import sqrt
from statistics import median

from nodeagent.wire.bounds import MIN_STEP_S

_NORMAL_MAD = 1.4826
"""Standard deviation over median absolute deviation, of a normal distribution."""
_MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, of a normal distribution."""
_SPREAD_FROM = 3
"""Numbers that a spread takes at the least."""

RING_SHARES = {
    "all_reduce": 1.0,
    "reduce_scatter": 0.5,
    "all_gather": 0.5,
    "broadcast": 0.5,
    "all_to_all": 0.5,
    "send_recv": 0.5,
    "other": 0.5,
}
"""Bytes that pass a node's link for each kind, as a share of those of a ring's all-reduce of as many: that sends each byte of
a tensor 2 (m-1)/m times between m nodes, reduce-scatter and all-gather are its halves, and the others send a tensor once."""


class IdealSource(Enum):
    """Where an ideal throughput is from, best first."""

    ALONE = "alone"
    STORE = "store"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class Ideal:
    """Throughput that a job would have alone."""

    steps_per_s: float
    source: IdealSource
    confidence: float
    """From 0 to 1: 1 - the relative error to be expected."""
    samples: int
    """Windows (ALONE), jobs (STORE) or profiles (PREDICTED) that it is made of."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """CS of one run: 1 is undisturbed, 2 is half as fast."""

    value: float
    observed_steps_per_s: float
    ideal: Ideal


@dataclass(frozen=True, slots=True)
class Priors:
    """Relative errors measured over all that is stored; until there is enough, those of the field's defaults."""

    window_spread: float = 0.1
    """Standard deviation of windows of one run alone."""
    job_spread: float = 0.15
    """Standard deviation of jobs that are alike."""
    prediction_error: float = 0.3
    """Of predictions against what the jobs then had alone."""


@dataclass(frozen=True, slots=True)
class StepProfile:
    """Where a step's time goes (means), as one rank's profiler saw it."""

    step_s: float
    compute_s: float
    exposed_s: float
    hidden_s: float
    ring_bytes: float
    """Bytes of a ring's all-reduce that would load the links as much; see RING_SHARES."""

    @property
    def communicate_s(self) -> float:
        """Communicating, hidden or not."""
        return self.exposed_s + self.hidden_s


def ring_bytes(kinds: Mapping[str, float]) -> float:
    """Bytes by kind as bytes of all-reduce."""
    return sum(size * RING_SHARES.get(kind, RING_SHARES["other"]) for kind, size in kinds.items())


def sent_bytes(profile: StepProfile, nodes: int) -> float:
    """Bytes that pass each node's link in one step, each direction."""
    return 2 * (nodes - 1) / nodes * profile.ring_bytes


def predict_step_s(profile: StepProfile, nodes: int, free_bytes_per_s: float | None) -> float | None:
    """Seconds of a step with the links for itself; None where their bandwidth is not known.

    step = rest + c + t - o min(c, t), with the share o of the shorter that was hidden when the profile was taken, t the time of the
    bytes over the free links, and rest what of the step was neither computing nor communicating. On one node, where nothing
    passes a link between nodes, the step is as it was. Never longer than it was: links do not get slower by being free.
    """
    if nodes < 2:
        return profile.step_s
    if free_bytes_per_s is None or free_bytes_per_s <= 0:
        return None
    then_s = profile.communicate_s
    now_s = min(sent_bytes(profile, nodes) / free_bytes_per_s, then_s)
    shorter_s = min(profile.compute_s, then_s)
    overlap = min(profile.hidden_s / shorter_s, 1.0) if shorter_s > 0 else 0.0
    rest_s = max(profile.step_s - profile.compute_s - profile.exposed_s, 0.0)
    step_s = rest_s + profile.compute_s + now_s - overlap * min(profile.compute_s, now_s)
    return max(min(step_s, profile.step_s), MIN_STEP_S)


def from_windows(steps_per_s: Sequence[float], priors: Priors) -> Ideal | None:
    """ALONE: the median over windows."""
    if not steps_per_s:
        return None
    error = _MEDIAN_ERROR * _spread(steps_per_s, priors.window_spread) / sqrt(len(steps_per_s))
    return Ideal(median(steps_per_s), IdealSource.ALONE, _confidence(error), len(steps_per_s))


def from_jobs(medians: Sequence[float], priors: Priors) -> Ideal | None:
    """STORE: the median over jobs that are alike, of what each achieved alone."""
    if not medians:
        return None
    error = _spread(medians, priors.job_spread) * sqrt(1 + 1 / len(medians))  # of one more job, by theirs
    return Ideal(median(medians), IdealSource.STORE, _confidence(error), len(medians))


def from_profiles(
    profiles: Sequence[StepProfile], nodes: int, free_bytes_per_s: float | None, priors: Priors
) -> Ideal | None:
    """PREDICTED: the median over profiles."""
    steps_s = [predict_step_s(profile, nodes, free_bytes_per_s) for profile in profiles]
    known = [step_s for step_s in steps_s if step_s]
    if not known:
        return None
    return Ideal(1 / median(known), IdealSource.PREDICTED, _confidence(priors.prediction_error), len(known))


def best_ideal(*candidates: Ideal | None) -> Ideal | None:
    """The first that there is."""
    return next((ideal for ideal in candidates if ideal is not None), None)


def sensitivity(observed_steps_per_s: float | None, ideal: Ideal | None) -> Sensitivity | None:
    """CS; None where it is not known what the job does or would do.

    A measured ideal may be below what is observed now: then CS is a little below 1, by as much as measurements differ. A prediction
    that is below is wrong, and what is observed takes its place.
    """
    if ideal is None or not observed_steps_per_s or observed_steps_per_s <= 0:
        return None
    if ideal.source is IdealSource.PREDICTED and ideal.steps_per_s < observed_steps_per_s:
        ideal = Ideal(observed_steps_per_s, ideal.source, ideal.confidence, ideal.samples)
    return Sensitivity(ideal.steps_per_s / observed_steps_per_s, observed_steps_per_s, ideal)


def relative_spread(values: Sequence[float]) -> float | None:
    """Standard deviation over the median, by absolute deviations (one stray counts little); None of fewer than three."""
    if len(values) < _SPREAD_FROM:
        return None
    middle = median(values)
    return _NORMAL_MAD * median(abs(value - middle) for value in values) / middle if middle > 0 else None


def _spread(values: Sequence[float], prior: float) -> float:
    found = relative_spread(values)
    return prior if found is None else found


def _confidence(error: float) -> float:
    return max(0.0, min(1.0, 1.0 - error))
