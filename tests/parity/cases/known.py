"""Cases in which Headway is worse, by the words of docs/operations.md that say so."""

from __future__ import annotations

from collections.abc import Mapping

KNOWN: Mapping[str, tuple[str, ...]] = {
    "not order the jobs that Headway holds": (
        "order-priority-by-root",
        "order-top",
    ),
    "gets its least number of nodes": (
        "gpus-per-node-range",
        "nodes-range",
        "nodes-range-of-three",
    ),
    "GPUs are divided equally over the nodes of a job": (
        "gpus-more-than-a-node",
        "gpus-per-task-two-nodes",
        "gpus-per-task-more-than-a-node",
    ),
    "and so is a change of priority": ("order-priority-by-user", "release-without-hold"),
    "counts as a hold of the job's user": ("hold-by-root-released-by-user",),
    "In a partition with `DefMemPerGPU`": ("partition-memory-per-gpu",),
    "takes longer than expected delays it": ("order-large-is-not-starved",),
    "of a reservation that has yet to begin starts later": ("reservation-later",),
}
"""Words → names of cases."""
