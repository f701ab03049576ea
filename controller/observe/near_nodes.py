"""Jobs that ask for nodes near each other (--switches, --segment). Pure functions.

Which sets of several nodes keep such an option, and for how long, is left to Slurm, which knows its whole topology and the time in
`--switches=1@5`; one node always keeps it. Without a topology the options mean nothing, and --switches neither for as many leaf
switches as there are.
"""

from __future__ import annotations

from dataclasses import replace

from controller.observe.shape import JobShape
from controller.slurm.model.job import SlurmJob

_SWITCHES = "--switches="


def restricts(option: str, leaf_switches: int | None) -> bool:
    """Return whether the option for nodes near each other rules out any set of nodes.

    `leaf_switches`: leaf switches, or blocks, of the cluster; 0: Slurm has no topology; None: not known.
    """
    if not option or leaf_switches == 0:
        return False
    number = option.removeprefix(_SWITCHES)
    at_most = int(number) if number != option and number.isdecimal() else None
    return leaf_switches is None or at_most is None or at_most < leaf_switches


def near_shape(job: SlurmJob, shape: JobShape, leaf_switches: int | None) -> JobShape:
    """Return the shape on one node, for a job of nodes near each other that leaves the number of nodes open and may have one."""
    may_have_one = shape.min_nodes <= 1 < shape.max_nodes
    return replace(shape, max_nodes=1) if may_have_one and restricts(job.by_topology, leaf_switches) else shape


def near_nodes_text(job: SlurmJob, min_nodes: int, leaf_switches: int | None) -> str:
    """Return why only Slurm can place a job of at least so many nodes; empty if the distance of nodes does not matter."""
    if min_nodes <= 1 or not restricts(job.by_topology, leaf_switches):
        return ""
    return f"asks for nodes near each other ({job.by_topology})"
