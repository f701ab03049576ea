"""Cases in which Headway is worse, by the words of docs/operations.md that say so, and the aspects in which it is."""

from __future__ import annotations

from collections.abc import Sequence

from tests.parity.case import Limit

SHAPE = ("nodes", "resources", "environment", "step", "accounting")
"""Aspects of a job that has other numbers of nodes, tasks or GPUs on a node."""

KNOWN: Sequence[Limit] = (
    Limit(
        "not order the jobs that Headway holds",
        ("command", "order"),
        ("order-priority-by-root", "order-top"),
    ),
    Limit(
        "gets its least number of nodes",
        SHAPE,
        ("gpus-per-node-range", "nodes-range", "nodes-range-of-three"),
    ),
    Limit(
        "GPUs are divided equally over the nodes of a job",
        SHAPE,
        ("gpus-more-than-a-node", "gpus-per-task-two-nodes", "gpus-per-task-more-than-a-node"),
    ),
    Limit("GPUs are divided equally over the nodes of a job", SHAPE, ("gpus-one-task-a-node",), ("24.11",)),
    Limit("and so is a change of priority", ("command",), ("order-priority-by-user", "release-without-hold")),
    Limit("counts as a hold of the job's user", ("state", "command"), ("hold-by-root-released-by-user",)),
    Limit("In a partition with `DefMemPerGPU`", ("environment", "step"), ("partition-memory-per-gpu",)),
    Limit("takes longer than expected delays it", ("start", "order"), ("order-large-is-not-starved",)),
    Limit("of a reservation that has yet to begin starts later", ("start",), ("reservation-later",)),
    Limit(
        "starts with one node's share of its tasks",
        (*SHAPE, "state", "output", "exit status"),
        ("ntasks-per-gpu",),
        ("24.11",),
    ),
    Limit(
        "is refused if its deadline leaves it less than 30 s",
        ("submission",),
        ("deadline-missed",),
        ("24.11", "26.05"),
    ),
)
