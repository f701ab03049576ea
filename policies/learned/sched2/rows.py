"""Where what stands in a row of features (`features`), for the network, the search, and whoever plays a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.learned.sched2.layout import REST_NUMBERS, Layout

if TYPE_CHECKING:
    from torch import Tensor

OF_SERVER = 3
"""Numbers of a server besides the hours of its GPUs."""
OF_JOB = 36
"""Numbers of a candidate."""
SIZES = 5
"""The last of them: a flag for jobs of 1, of 2, up to 4, up to a node, and of more GPUs."""
OF_ALL = REST_NUMBERS + 1
"""Of the rest of the queue, and of the cluster."""
LOG_TIME, IS_SPREAD, LOG_GPUS = 0, 6, 14
"""Of a candidate's: log of its ideal time, whether it would be scattered now, log of its GPUs."""
NEVER_H = 48.0
"""Hours after which a GPU that is not there comes free."""


@dataclass(frozen=True)
class Shape:
    """Where what stands in a row of features."""

    layout: Layout

    @property
    def servers(self) -> int:
        """Numbers of a server."""
        return self.layout.gpus + OF_SERVER

    @property
    def size(self) -> int:
        """Of a row."""
        return self.layout.nodes * self.servers + self.layout.candidates * (OF_JOB + 1) + OF_ALL

    @property
    def parts(self) -> tuple[int, int, int]:
        """Where those of the candidates begin, the servers that packing takes first, and the rest."""
        layout = self.layout
        jobs = layout.nodes * self.servers
        first = jobs + layout.candidates * OF_JOB
        return jobs, first, first + layout.candidates

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Servers (batch, N, .), candidates (batch, J, OF_JOB), the server that packing takes first of each, and the rest."""
        layout = self.layout
        jobs, first, rest = self.parts
        return (
            rows[:, :jobs].view(-1, layout.nodes, self.servers),
            rows[:, jobs:first].view(-1, layout.candidates, OF_JOB),
            rows[:, first:rest].long(),
            rows[:, rest:],
        )
