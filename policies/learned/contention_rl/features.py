"""What an agent sees of a job: measured features, so that a model that was never seen in training has a place among the others.

Each feature lies in [0, 1]:

- *communication*: share of a step that the job spends communicating when it is alone on two nodes;
- *bandwidth*: what it sends meanwhile, averaged over the step, as a share of a node's link;
- *sensitivity*: throughput that it loses beside a neighbour, averaged over the neighbours it was measured with; who was measured
  with nobody is taken to lose what it spends communicating, the most that losing half of a link can cost.

As one number (the scalar that the paper's cells hold): 0.1 + 0.9 x their mean, so that a GPU in use is never 0.

The first number of a cell with features is 1 for a GPU in use. For candidate k of K it is 1 - k/K, because an action names a
candidate by its place in the queue, which the cell alone would not tell. The last is the share of its nodes that are others:
who is spread shares links with more jobs, and loses more or less beside them; 0 for candidates and for who has one node.
"""

from __future__ import annotations

from collections.abc import Sequence

FEATURES = ("held", "communication", "bandwidth", "sensitivity", "elsewhere")
"""Of a cell that holds features."""
SCALAR, MANY = "scalar", "features"
"""What a cell may hold."""
Features = tuple[float, float, float]
"""Communication, bandwidth and sensitivity."""
_LEAST = 0.1
_WEIGHTS_PER_UNIT = 1_000_000


def features(
    sent_bytes: float, compute_s: float, overlap: float, hiding: float, link_bytes_per_s: float, lost: float | None
) -> Features:
    """Of a model that sends so much on two nodes in a step.

    A share `overlap` of the shorter of communicating and a share `hiding` of computing is hidden. `lost` is the throughput that
    it was measured to lose beside others, as a share; None where it was measured with nobody.
    """
    communicate_s = sent_bytes / link_bytes_per_s
    step_s = compute_s + communicate_s - overlap * min(hiding * compute_s, communicate_s)
    communication = _share(communicate_s / step_s)
    bandwidth = _share(sent_bytes / step_s / link_bytes_per_s)
    return communication, bandwidth, communication if lost is None else _share(lost)


def scalar(of: Features) -> float:
    """All three as one number, more than 0."""
    return _LEAST + (1.0 - _LEAST) * sum(of) / 3


def shown(cells: str, of: Features, rank: float = 1.0, nodes: int = 1) -> Sequence[float]:
    """What a cell of that kind holds; `rank` is 1 for a job that runs, `nodes` how many it runs on."""
    return (rank, *of, 1.0 - 1.0 / nodes) if cells == MANY else (scalar(of),)


def rank(place: int, candidates: int) -> float:
    """First number of the candidate in that place, from 0, of so many that there can be."""
    return 1.0 - place / candidates


def weight_of(of: Features) -> int:
    """How much traffic a job is taken to bring to its nodes; whole, so that sums do not depend on their order."""
    return round(of[1] * _WEIGHTS_PER_UNIT)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
