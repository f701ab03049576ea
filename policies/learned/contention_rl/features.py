"""Features of a job from measurements, so that the agent can place models that were not in its training.

Each feature lies in [0, 1]:

- *communication*: share of a step that the job spends communicating when it is alone on two nodes;
- *bandwidth*: its traffic in that case, averaged over the step, as a share of a node's link;
- *sensitivity*: throughput that it loses beside a neighbour, averaged over the neighbours that it was measured with; without such
  measurements it is the time spent communicating, the most that losing half of a link can cost.

As one number (the scalar that the paper's cells hold): 0.1 + 0.9 x their mean, so that a GPU in use is never 0.

The first number of a cell with features is 1 for a GPU in use. For candidate k of K it is 1 - k/K, because an action names a
candidate by its place in the queue, which the cell would not show otherwise. The last is the share of the job's other nodes among
its nodes, since a spread job shares links with more jobs; it is 0 for candidates and for jobs on one node.
"""

from __future__ import annotations

from collections.abc import Sequence

FEATURES = ("occupied", "communication", "bandwidth", "sensitivity", "elsewhere")
"""The numbers of a cell that holds features."""
SCALAR, MANY = "scalar", "features"
"""Kinds of cells."""
Features = tuple[float, float, float]
"""Communication, bandwidth and sensitivity."""
_LEAST = 0.1
_WEIGHTS_PER_UNIT = 1_000_000


def features(
    sent_bytes: float, compute_s: float, overlap: float, hiding: float, link_bytes_per_s: float, lost: float | None
) -> Features:
    """Return the features of a model that sends `sent_bytes` on two nodes in a step.

    A share `overlap` of the shorter of communicating and a share `hiding` of computing is hidden. `lost` is the measured loss of
    throughput beside others, as a share; None where it was not measured.
    """
    communicate_s = sent_bytes / link_bytes_per_s
    step_s = compute_s + communicate_s - overlap * min(hiding * compute_s, communicate_s)
    communication = _share(communicate_s / step_s)
    bandwidth = _share(sent_bytes / step_s / link_bytes_per_s)
    return communication, bandwidth, communication if lost is None else _share(lost)


def scalar(of: Features) -> float:
    """Return all three as one number, more than 0."""
    return _LEAST + (1.0 - _LEAST) * sum(of) / 3


def shown(cells: str, of: Features, rank: float = 1.0, nodes: int = 1) -> Sequence[float]:
    """Return the values of a cell of that kind; `rank` is 1 for a running job, `nodes` the number of its nodes."""
    return (rank, *of, 1.0 - 1.0 / nodes) if cells == MANY else (scalar(of),)


def rank(place: int, candidates: int) -> float:
    """Return the first number of the candidate in that place, from 0, out of at most `candidates`."""
    return 1.0 - place / candidates


def weight_of(of: Features) -> int:
    """Return the traffic that a job brings to its nodes, as a whole number, so that sums do not depend on their order."""
    return round(of[1] * _WEIGHTS_PER_UNIT)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
