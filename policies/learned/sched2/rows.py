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
"""Numbers of a candidate; hours unless said, `queue` the log of how many wait besides the candidates, GPUs in servers:

     0 log ideal time         6 would be scattered now      12 log until its server is empty    18 at most two empty ones are left
     1 log time where it      7 time lost by that           13 GPUs left there beside others    19 large candidates, up to 3
       would run now          8 log until it fits on one    14 log2 GPUs                        20 queue
     2 GPUs                   9 gained by not waiting       15 queue x 0
     3 log loss by one more     for that, if scattered      16 queue x 14
       server                10 outlasts its server's jobs  17 breaks up an empty server; of who does, else 0: 18 to 20
     4 log wait / ideal      11 the same where any run
     5 log wait                 there, at least 0

Of jobs smaller than a server: 21 large candidates (a server or more); 22 empty servers that the first of them is short of; where
there are any, 23 the log of their longest wait, 24 queue; where it breaks up an empty server, 25 to 27 as 22 to 24; else, 28 as 11.
Of large ones: 29 queue, 30 empty servers that it is short of. 31 to 35 are `SIZES`. `features` clips and scales some of them.
"""
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
