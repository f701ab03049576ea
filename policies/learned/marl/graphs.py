"""The graphs of MARL as the agents know them: nodes, and edges with features (section IV-A).

The **inner graph** of a scheduler has its GPU groups, the CPU of each group, and the switches of its partition. The **inter
graph** has the schedulers, and the switches that connect their partitions. An edge has three features, each between 0 and 1:
bandwidth, tier, and load, of which the last changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
FEATURES = 3
"""Features of an edge: bandwidth, tier, load."""
RESOURCES = 2
"""L: GPUs and cores."""
TYPES = 8
"""Y: model types (table I)."""
MOST_GPUS, MOST_CORES, MOST_TASKS = 8.0, 32.0, 8.0
"""Amounts that are shown as 1, the largest of the paper's settings: GPUs and cores of a group, and tasks of a job."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes and undirected edges. Invariant: the nodes with features come first."""

    nodes: int
    ends: Ints
    """Nodes of each edge (E, 2)."""
    fixed: Floats
    """Bandwidth and tier of each edge (E, 2)."""

    @property
    def edges(self) -> int:
        """Number of edges, E."""
        return len(self.ends)


@dataclass(frozen=True, eq=False)
class Layout:
    """Sizes of the observations, and the graphs; all schedulers have the same."""

    schedulers: int
    groups: int
    """M: GPU groups of a scheduler, the first nodes of `inner`."""
    jobs: int
    """N: jobs that a scheduler's state shows."""
    inner: Graph
    inter: Graph
    """Its first nodes are the schedulers."""
    by_type: bool = False
    """True: a GPU group shows the tasks of other jobs by model type, so that its features do not depend on N."""

    @property
    def of_group(self) -> int:
        """Features of a GPU group: L free resources, then the workers and the parameter servers of each of N jobs; `by_type`: those
        of the job to be placed, and of the other jobs of each type."""
        return RESOURCES + (2 * (1 + TYPES) if self.by_type else 2 * self.jobs)

    @property
    def of_job(self) -> int:
        """Features of a job: the model one-hot, and numbers and demands of workers and of parameter servers (x and r)."""
        return TYPES + 2 * (1 + RESOURCES)

    @property
    def of_task(self) -> int:
        """Features of the task to be placed (p): 1 for a parameter server, and those of its job."""
        return 1 + self.of_job

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parts of one scheduler's observation; `by_type` has no list of jobs."""
        found = {
            "groups": (self.groups, self.of_group),
            "jobs": (self.jobs, self.of_job),
            "task": (self.of_task,),
            "links": (self.inner.edges,),
        }
        if self.by_type:
            del found["jobs"]
        return found

    @property
    def actions(self) -> int:
        """Actions: the groups of the scheduler, and forwarding to each scheduler; the one to itself is that of a scheduler without
        a task."""
        return self.groups + self.schedulers
