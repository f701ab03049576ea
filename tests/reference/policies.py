"""The baselines: from the active jobs to the allocation (job index -> nodes) that a policy wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from tests.reference.cluster import Cluster
from tests.reference.model import Active, Nodes

Key = Callable[[Active], Fraction | int]

TIRESIAS_THRESHOLD = 3200
"""Attained GPU-seconds from which a job is in the second queue."""

FIRST_LEVEL = 200
"""Attained GPU-seconds below which a job is in the first level of `las-levels`."""


def level(attained: Fraction | int) -> int:
    """Return how many of the bounds FIRST_LEVEL, twice that, four times that, ... the attained service has reached."""
    reached, bound = 0, FIRST_LEVEL
    while attained >= bound:
        reached, bound = reached + 1, 2 * bound
    return reached


# Orders, least first. Ties go by place in the order of submission.
NEVER_STOP: dict[str, Key] = {
    "fifo": lambda active: active.index,
    "fifo-skip": lambda active: active.index,
    "sjf": lambda active: active.job.duration,
    "fewest-gpus": lambda active: active.job.gpus,
    "backfill": lambda active: active.index,
}
MAY_STOP: dict[str, Key] = {
    "srtf": lambda active: active.left,
    "srtf-count": lambda active: active.left,
    "srsf": lambda active: active.left * active.job.gpus,
    "las": lambda active: active.attained,
    "las-count": lambda active: active.attained,
    "tiresias": lambda active: 1 if active.attained >= TIRESIAS_THRESHOLD else 0,
    "las-levels": lambda active: level(active.attained),
}
POLICIES = (*NEVER_STOP, *MAY_STOP)
WITH_ROUNDS = ("las", "las-count", "las-levels", "tiresias")


def decide(policy: str, jobs: Sequence[Active], cluster: Cluster, now: Fraction) -> dict[int, Nodes]:
    """Return the allocation that the policy wants from now on; jobs that are left out wait."""
    key = (NEVER_STOP | MAY_STOP)[policy]
    order = sorted(jobs, key=lambda active: (key(active), active.index))
    if policy == "backfill":
        return backfill(order, cluster, now)
    if policy in NEVER_STOP:
        return start_in_order(order, cluster, strict=policy == "fifo")
    if policy.endswith("-count"):
        # Scattered over the freest nodes, a selection fits whenever the total of GPUs suffices.
        cluster = replace(cluster, placement="any")
    return select(order, cluster)


def start_in_order(order: Sequence[Active], cluster: Cluster, *, strict: bool) -> dict[int, Nodes]:
    """Waiting jobs start where they fit; with `strict`, the first that does not ends the pass."""
    wanted = {active.index: active.nodes for active in order if active.runs}
    for active in order:
        if active.runs:
            continue
        nodes = cluster.place(active.job.gpus, wanted.values())
        if nodes is not None:
            wanted[active.index] = nodes
        elif strict:
            break
    return wanted


def select(order: Sequence[Active], cluster: Cluster) -> dict[int, Nodes]:
    """Down the order, a job is selected if the whole selection can be laid out with it.

    Running jobs that must not be stopped come before all others.
    """
    pinned = [active for active in order if active.runs and not active.job.preemptible]
    selection: list[Active] = []
    layout: dict[int, Nodes] = {}
    for active in pinned + [active for active in order if active not in pinned]:
        larger = cluster.lay_out([*selection, active])
        if larger is not None:
            selection.append(active)
            layout = larger
    return layout


def backfill(order: Sequence[Active], cluster: Cluster, now: Fraction) -> dict[int, Nodes]:
    """EASY: heads start while they can; then later jobs start that do not keep the blocked head from its time.

    A start is kept if it ends by that time, or if the head can be placed at that time although it still runs.
    """
    wanted = start_in_order(order, cluster, strict=True)
    blocked = [active for active in order if active.index not in wanted]
    if not blocked:
        return wanted
    ends = {active.index: now + active.run_time_left for active in order}
    head, *later = blocked

    def head_fits_at(time: Fraction, held: dict[int, Nodes]) -> bool:
        still_held = [nodes for index, nodes in held.items() if ends[index] > time]
        return cluster.place(head.job.gpus, still_held) is not None

    reserved = min(ends[index] for index in wanted if head_fits_at(ends[index], wanted))
    for active in later:
        nodes = cluster.place(active.job.gpus, wanted.values())
        if nodes is None:
            continue
        started = wanted | {active.index: nodes}
        if ends[active.index] <= reserved or head_fits_at(reserved, started):
            wanted = started
    return wanted
