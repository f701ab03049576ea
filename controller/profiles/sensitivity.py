"""Contention sensitivity (CS): how many times slower a job runs than it would alone, and the confidence in that. Pure.

CS = ideal / observed throughput, at the job's present shape. The ideal is the first of these that is available:

- ALONE: throughput of this run, or another run of the job, in windows in which no job shared its links and hosts;
- STORE: throughput of earlier jobs of the same user, script, model and shape without neighbours;
- PREDICTED: from the computing time and the bytes of its profile, and the bandwidth of its links when they are free.

The confidence of ALONE falls with the age of its windows; once it is old, a later source of more confidence counts instead.

Confidence is 1 - the expected relative error of the ideal. Errors are measured: the spread of windows, the spread of jobs, and
the difference between past predictions and later measurements.
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
"""Minimum number of values for a spread."""

RING_SHARES = {
    "all_reduce": 1.0,
    "reduce_scatter": 0.5,
    "all_gather": 0.5,
    "broadcast": 0.5,
    "all_to_all": 0.5,
    "send_recv": 0.5,
    "other": 0.5,
}
"""Bytes of each kind that pass a node's link in one direction, relative to a ring all-reduce of the same tensor.

The tensor is the whole one (CollectiveUse.bytes): the result of an all-gather, the input of a reduce-scatter. Between m nodes an
all-reduce sends each of its bytes 2 (m-1)/m times over each link; reduce-scatter and all-gather are its halves (PERFORMANCE.md of
nccl-tests has these factors). Broadcast and reduce send the tensor on from all nodes but one: (m-1)/m times on the average.
`send_recv` adds up what a rank sends and what it receives, of which half passes in each direction between two stages of a pipeline,
and all of it on a node between two others. In an all-to-all every rank sends (m-1)/m of a tensor of its own to other nodes, so all
ranks of a node load its link; see `ring_bytes`."""


class IdealSource(Enum):
    """Source of an ideal throughput, best first."""

    ALONE = "alone"
    STORE = "store"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class Ideal:
    """Throughput that a job would have alone."""

    steps_per_s: float
    source: IdealSource
    confidence: float
    """1 - the expected relative error, from 0 to 1."""
    samples: int
    """Number of windows (ALONE), jobs (STORE) or profiles (PREDICTED) behind it."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """CS of one run: 1 is undisturbed, 2 is half as fast."""

    value: float
    observed_steps_per_s: float
    ideal: Ideal


@dataclass(frozen=True, slots=True)
class Priors:
    """Relative errors measured over the whole store; the defaults apply until there are enough measurements."""

    window_spread: float = 0.1
    """Standard deviation between windows of one run without neighbours."""
    job_spread: float = 0.15
    """Standard deviation between similar jobs."""
    prediction_error: float = 0.3
    """Error of predictions against the speeds measured later."""


@dataclass(frozen=True, slots=True)
class StepProfile:
    """Parts of a step's time (means), from one rank's profiler."""

    step_s: float
    compute_s: float
    exposed_s: float
    hidden_s: float
    ring_bytes: float
    """Bytes of a ring all-reduce of all ranks that would load the links equally; see RING_SHARES."""

    @property
    def communicate_s(self) -> float:
        """Time of communication, hidden or not, in seconds."""
        return self.exposed_s + self.hidden_s


def ring_bytes(kinds: Mapping[str, float], ranks_per_node: float = 1.0) -> float:
    """Return the bytes by kind, of one rank, as equivalent bytes of all-reduce.

    It is assumed that all ranks of the job take part in each call. Where the hook knows the groups, it reports bytes for which this
    holds (CollectiveUse.link_bytes).

    `ranks_per_node`: ranks of the job on each of its nodes. All of them send in an all-to-all; rings pass each node once, however
    many ranks it has.
    """
    return sum(
        size * RING_SHARES.get(kind, RING_SHARES["other"]) * (ranks_per_node if kind == "all_to_all" else 1.0)
        for kind, size in kinds.items()
    )


def sent_bytes(profile: StepProfile, nodes: int) -> float:
    """Return the bytes that pass each node's link in one step, in each direction."""
    return 2 * (nodes - 1) / nodes * profile.ring_bytes


def predict_step_s(profile: StepProfile, nodes: int, free_bytes_per_s: float | None) -> float | None:
    """Return the seconds of a step with free links; None when their bandwidth is not known.

    step = rest + c + t - o min(c, t). Here c is the computing time, t the time of the bytes over free links, o the share of the
    shorter of the two that was hidden in the profile, and rest the part of the step that was neither. On one node the step stays
    as it was. The result is never longer than the profiled step, because free links are not slower.
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
    """Return the ideal ALONE: the median over windows."""
    if not steps_per_s:
        return None
    error = _MEDIAN_ERROR * _spread(steps_per_s, priors.window_spread) / sqrt(len(steps_per_s))
    return Ideal(median(steps_per_s), IdealSource.ALONE, _confidence(error), len(steps_per_s))


def from_jobs(medians: Sequence[float], priors: Priors) -> Ideal | None:
    """Return the ideal STORE: the median over similar jobs of their speed alone."""
    if not medians:
        return None
    error = _spread(medians, priors.job_spread) * sqrt(
        1 + 1 / len(medians)
    )  # error of one more job, from the spread of these
    return Ideal(median(medians), IdealSource.STORE, _confidence(error), len(medians))


def from_profiles(
    profiles: Sequence[StepProfile], nodes: int, free_bytes_per_s: float | None, priors: Priors
) -> Ideal | None:
    """Return the ideal PREDICTED: the median over profiles."""
    steps_s = [predict_step_s(profile, nodes, free_bytes_per_s) for profile in profiles]
    known = [step_s for step_s in steps_s if step_s]
    if not known:
        return None
    return Ideal(1 / median(known), IdealSource.PREDICTED, _confidence(priors.prediction_error), len(known))


def best_ideal(*candidates: Ideal | None) -> Ideal | None:
    """Return the first candidate that is not None."""
    return next((ideal for ideal in candidates if ideal is not None), None)


def sensitivity(observed_steps_per_s: float | None, ideal: Ideal | None) -> Sensitivity | None:
    """Return the sensitivity; None when the observed or the ideal speed is not known.

    A measured ideal may be below the present speed; then CS is a little below 1, because measurements vary. A prediction below the
    present speed is wrong, and the present speed replaces it.
    """
    if ideal is None or not observed_steps_per_s or observed_steps_per_s <= 0:
        return None
    if ideal.source is IdealSource.PREDICTED and ideal.steps_per_s < observed_steps_per_s:
        ideal = Ideal(observed_steps_per_s, ideal.source, ideal.confidence, ideal.samples)
    return Sensitivity(ideal.steps_per_s / observed_steps_per_s, observed_steps_per_s, ideal)


def relative_spread(values: Sequence[float]) -> float | None:
    """Return the standard deviation over the median, from absolute deviations (robust to outliers); None for fewer than three."""
    if len(values) < _SPREAD_FROM:
        return None
    middle = median(values)
    return _NORMAL_MAD * median(abs(value - middle) for value in values) / middle if middle > 0 else None


def _spread(values: Sequence[float], prior: float) -> float:
    found = relative_spread(values)
    return prior if found is None else found


def _confidence(error: float) -> float:
    return max(0.0, min(1.0, 1.0 - error))
