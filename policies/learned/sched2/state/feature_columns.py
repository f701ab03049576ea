"""The columns of a row of features (`features`), for the network, the search, and environments that play rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.learned.sched2.state.state_columns import REST_NUMBERS, StateColumns

if TYPE_CHECKING:
    from torch import Tensor

FREE_SHARE, IS_EMPTY, ABSENT_SHARE = range(3)
"""Features of a server after the hours of its GPUs: shares of its GPUs that are free and absent, and a flag for all being free."""
OF_SERVER = 3
"""Number of features of a server besides the hours of its GPUs."""

# Features of a candidate. Times are in hours, GPUs in servers; `queue` is the log of how many jobs wait besides the candidates.
# A job is small if it asks for less than a server, and large otherwise. `features` clips and scales some of the numbers.
LOG_TIME = 0
"""Log of the ideal time."""
LOG_TIME_NOW = 1
"""Log of the time where the job would run now."""
GPUS = 2
LOG_SPREAD_LOSS = 3
"""Log of the loss by one more server."""
LOG_RELATIVE_WAIT = 4
"""Log of the wait over the ideal time."""
LOG_WAIT = 5
IS_SPREAD = 6
"""1 where the job would be scattered now."""
TIME_LOST = 7
"""Time lost by being scattered."""
LOG_UNTIL_LOCAL = 8
"""Log of the time until the job fits on one server."""
GAIN_OF_STARTING = 9
"""Time gained by waiting until then, where the job would be scattered now."""
OUTLASTS = 10
"""Time for which the job outlasts the other jobs of its server."""
OUTLASTS_OTHERS = 11
"""The same where there are other jobs, at least 0."""
LOG_UNTIL_CLEAR = 12
"""Log of the time until its server is empty."""
GPUS_LEFT = 13
"""GPUs left free there beside other jobs."""
LOG_GPUS = 14
QUEUE_TIMES_LOG_TIME = 15
QUEUE_TIMES_LOG_GPUS = 16
BREAKS_EMPTY = 17
"""1 where a small job takes an empty server; the next three are 0 elsewhere."""
BREAKS_ONE_OF_TWO = 18
"""1 where at most two servers are empty."""
BREAKS_LARGE = 19
"""Number of large candidates, up to 3."""
BREAKS_QUEUE = 20
SMALL_LARGE = 21
"""For a small job: number of large candidates."""
SMALL_MISSING = 22
"""For a small job: empty servers that the first large candidate is short of; the next two are 0 where there is none."""
SMALL_LARGE_WAIT = 23
"""Log of the longest wait of the large candidates."""
SMALL_LARGE_QUEUE = 24
BREAKS_MISSING = 25
"""The three features from SMALL_MISSING on, where a small job takes an empty server."""
BREAKS_LARGE_WAIT = 26
BREAKS_LARGE_QUEUE = 27
SHARES_OUTLASTS = 28
"""The value of OUTLASTS_OTHERS, where a small job takes a server in use and a large candidate waits."""
LARGE_QUEUE = 29
"""For a large job: `queue`."""
LARGE_MISSING = 30
"""For a large job: empty servers that it is short of."""
SIZE_FLAGS = 31
"""The first of SIZES flags: for jobs of 1, of 2, of up to 4, of up to a server, and of more GPUs."""
SIZES = 5
OF_JOB = SIZE_FLAGS + SIZES
"""Number of features of a candidate."""
OF_ALL = REST_NUMBERS + 1
"""Number of features of the rest of the queue, and of the cluster."""
NEVER_H = 48.0
"""Stands for the time after which an absent GPU comes free, in hours."""


@dataclass(frozen=True)
class FeatureColumns:
    """Positions in a row of features."""

    columns: StateColumns

    @property
    def servers(self) -> int:
        """Number of features of a server."""
        return self.columns.gpus + OF_SERVER

    @property
    def size(self) -> int:
        """Length of a row."""
        return self.columns.nodes * self.servers + self.columns.candidates * (OF_JOB + 1) + OF_ALL

    @property
    def parts(self) -> tuple[int, int, int]:
        """Positions where the candidates' features begin, the servers that packing takes first, and the rest."""
        columns = self.columns
        jobs = columns.nodes * self.servers
        first = jobs + columns.candidates * OF_JOB
        return jobs, first, first + columns.candidates

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return servers (batch, N, .), candidates (batch, J, OF_JOB), the server where packing puts each first, and the rest."""
        columns = self.columns
        jobs, first, rest = self.parts
        return (
            rows[:, :jobs].view(-1, columns.nodes, self.servers),
            rows[:, jobs:first].view(-1, columns.candidates, OF_JOB),
            rows[:, first:rest].long(),
            rows[:, rest:],
        )
