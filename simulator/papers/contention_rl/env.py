"""The environment of contention-aware scheduling by reinforcement learning (Ryu and Eo, section IV).

**State**: an array (nodes, 2 x GPUs per node). A cell of the left half stands for a GPU and has the profile of the job on it,
0 if the GPU is free. A cell (i, j) of the right half, j counted from 1, has the profile of a candidate that can be spread over
2^i nodes with j GPUs of each. A profile is one number, or features with `cells='features'`, and then the array has a third axis.
Candidates are the first waiting job of each of the K demands that come first in the queue. If two candidates have the same
cell (9 and 10 GPUs are both 2 x 5, rounded up), it shows the candidate nearer to the head of the queue.

**Action**: 0 waits; 1 + k x (placements of one candidate) + p starts candidate k by placement p.
Time does not advance until the agent waits, so one round starts as many jobs as the agent chooses, each with its own node list. An
impossible action means to wait.

Policies that were learned here use the same cells and placements in any cluster: `policies.learned.contention_rl`, with its
`features`, `gpu_grid` and `placement_actions`.

**Reward**: -W1 x CS + W2 x Util (equation 2), CS the mean of ideal / present throughput over running jobs, Util the share of
GPUs in use. It is integrated over the time of a wait, in rounds: a round without changes earns exactly the equation, and
`decide`, `round_s` and `skip_forced` do not change the sum over an episode with the same decisions. Starting a job earns 0.
`reward='jct'` is minus the active jobs' share of all jobs, which adds up to -(average JCT / round_s).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, SupportsInt

import gymnasium
import numpy as np

from policies.errors import EncoderError
from policies.learned.contention_rl.features import FEATURES, MANY, SCALAR, rank, shown, weight_of
from policies.learned.contention_rl.gpu_grid import ABSENT, CellValues, GpuGrid
from policies.learned.contention_rl.placement_actions import (
    ANY,
    EVEN,
    FEWEST,
    LISTS,
    PACKED,
    RULES,
    PlacementActions,
    Where,
    allowed,
    placement_actions,
)
from simulator.envs.base import Cells, Mask, SchedulingEnv
from simulator.envs.options import EnvOptions, check, options_of
from simulator.envs.space_parts import SpacePart
from simulator.errors import SettingError
from simulator.kernel.constants import CONSOLIDATED
from simulator.kernel.job import ActiveJob
from simulator.papers.contention_rl.decisions import ContentionMapping
from simulator.papers.contention_rl.features import JobFeatures
from simulator.slowdown.api import SlowdownModel
from simulator.traces.trace import NS_PER_S

BRANCHES = {"A": (0.3, 0.7), "B": (0.4, 0.6), "C": (0.5, 0.5), "D": (0.6, 0.4), "E": (0.7, 0.3)}
"""W1 and W2 of the paper's evaluation."""
CONTENTION, JCT = "contention", "jct"
_BY_INDEX = attrgetter("index")
_BY_SPEED = attrgetter("speed", "index")


@dataclass(frozen=True, kw_only=True)
class ContentionOptions(EnvOptions):
    """The options of `headway/Contention-v0`."""

    slowdown: Sequence[str | SlowdownModel] = ("pair-table",)
    """The paper also trains on a table of measured pairs. `none`, or empty, for jobs that do not slow each other down."""
    candidates: int = 3
    """Number K of demands whose first job is a candidate."""
    branch: str = "B"
    """A to E, which select the weights W1 and W2."""
    reward: str = CONTENTION
    """contention (the paper's) or jct."""
    idle_sensitivity: float = 1.0
    """CS of a cluster in which nothing runs although jobs wait. 0 is algorithm 1 literally; it rewards an idle cluster."""
    nodes: str = LISTS
    """lists or rules: the meaning of a placement in an action."""
    split: str = EVEN
    """even or packed: the division of a job's GPUs among nodes."""
    starts: str = ANY
    """any or fewest: any candidate that fits may be started next, or only the one of these with the fewest GPUs."""
    cells: str = SCALAR
    """scalar or features."""
    preempt_below: float | None = None
    """At a decision, jobs below this share of their ideal speed are stopped (the paper's code: 0.6), the slowest first."""
    preempt_after_s: float = 300.0
    """Only jobs whose present run has lasted so long are stopped."""

    def __post_init__(self) -> None:
        """Raises SettingError for an impossible value."""
        super().__post_init__()
        check("branch", self.branch, BRANCHES)
        check("reward", self.reward, (CONTENTION, JCT))
        check("nodes", self.nodes, (LISTS, RULES))
        check("split", self.split, (EVEN, PACKED))
        check("starts", self.starts, (ANY, FEWEST))
        check("cells", self.cells, (SCALAR, MANY))
        if self.candidates < 1:
            raise SettingError(f"candidates is {self.candidates!r}; give at least 1")
        if self.preempt_below is not None and not 0 < self.preempt_below < 1:
            raise SettingError(f"preempt_below is {self.preempt_below!r}; give a share between 0 and 1, or None")
        if not self.preempt_after_s > 0:
            raise SettingError(f"preempt_after_s is {self.preempt_after_s!r}; give seconds, more than 0")


class ContentionEnv(SchedulingEnv[Cells, np.int64]):
    """`gymnasium.make("headway/Contention-v0", **options)`; the options are the fields of ContentionOptions."""

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode is not None:
            raise SettingError(f"render_mode is {render_mode!r}; this environment draws nothing, leave it out")
        self.options = asked = options_of(ContentionOptions, options)
        super().__init__(asked)
        self._features = JobFeatures(asked.profiles, self.cluster.topology)
        self._grid = grid = GpuGrid(self.cluster.gpus, len(FEATURES) if asked.cells == MANY else 1)
        self._placements = self._placement_actions(asked)
        self._shape = grid.array.shape if asked.cells == MANY else grid.array.shape[:2]
        self._w1, self._w2 = BRANCHES[asked.branch]
        self._after = round(asked.preempt_after_s * NS_PER_S)
        self._slots: dict[int, list[int]] = {}
        self._numbers: dict[tuple[str, float, int], CellValues] = {}
        self._candidates: list[ActiveJob] = []
        self._queues_moved = True
        """True if jobs left or rejoined the queues since candidates were computed; `_arrived` is the number of arrivals then."""
        self._arrived = 0
        self._running_rate = 0.0
        """Reward of a round with the present jobs at their present speeds."""
        self._low = ABSENT if len(set(self.cluster.gpus)) > 1 or asked.settings.changes else 0.0
        self.observation_space = gymnasium.spaces.Box(self._low, 1.0, self._shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(1 + asked.candidates * self._placements.size)

    def space_parts(self) -> Sequence[SpacePart]:
        """Return the GPUs of the nodes, and the candidates."""
        width, every = self._grid.width, slice(None)
        value = "0.1 + 0.9 x the mean of communication, bandwidth and sensitivity of the job's model"
        if self.options.cells == MANY:
            value = "five numbers for the job: " + ", ".join(FEATURES)
        gpus = "a row for each node, a cell for each GPU: 0 a free GPU, -1 an absent one, else " + value
        asked = "as many cells as each candidate asks for GPUs, with its value"
        return (
            SpacePart("GPUs", (every, slice(None, width)), self._low, 1.0, "share", gpus),
            SpacePart("candidates", (every, slice(width, None)), 0.0, 1.0, "share", asked),
        )

    def actions_text(self) -> str:
        """Return the meaning of the actions."""
        return f"0 waits; 1 + {self._placements.size} k + p starts candidate k in placement p"

    def _placement_actions(self, asked: ContentionOptions) -> PlacementActions[ActiveJob]:
        try:
            return placement_actions(asked.nodes, asked.split, self._grid, self._best_fit)
        except EncoderError as error:
            raise SettingError(str(error)) from None

    @property
    def candidates(self) -> Sequence[ActiveJob]:
        """Return the jobs that can be started now, the head of the queue first."""
        return self._candidates

    @property
    def placements(self) -> PlacementActions[ActiveJob]:
        """Return the placements of a candidate, by number."""
        return self._placements

    def decision_mapping(self) -> ContentionMapping:
        """Return the mapping of policies' decisions to this environment's actions."""
        return ContentionMapping(self)

    def action_masks(self) -> Mask:
        """Return which actions are possible now; waiting always is."""
        masks = self._masks()
        missing = bytes((self.options.candidates - len(masks)) * self._placements.size)
        return np.frombuffer(bytearray(b"".join((b"\1", *masks, missing))), dtype=np.bool_)

    def _masks(self) -> list[bytes]:
        """Return the possible placements of each candidate."""
        jobs = self._candidates
        return allowed([self._placements.mask(job) for job in jobs], [job.gpus for job in jobs], self.options.starts)

    # The episode

    def _begin(self) -> None:
        self._candidates = []
        self._queues_moved = True
        self._grid.reset()
        for gpus in set(self.trace.num_gpus.tolist()):
            if gpus not in self._slots:
                self._slots[gpus] = self._slots_of(gpus)

    def _slots_of(self, gpus: int) -> list[int]:
        """Return the cells that show a candidate of so many GPUs. Raises SettingError if it can never be placed."""
        spreads = self._placements.spreads(gpus)
        if not spreads and self.options.split == EVEN:
            raise SettingError(
                f"a job of {gpus} GPUs cannot be divided evenly among 1, 2, 4, ... nodes of this cluster; give split='packed'"
            )
        return [self._grid.slot(spread.row, spread.share) for spread in spreads]

    def _observe(self) -> Cells:
        self._show_candidates()
        return self._grid.array.reshape(self._shape).copy()

    def _show_candidates(self) -> None:
        """Compute the candidates, and show them in the grid if they have changed."""
        if not self._queues_moved and self.loop.arrived == self._arrived:
            return
        self._queues_moved, self._arrived = False, self.loop.arrived
        heads = [queue[0] for queue in self.loop.queues if queue]
        heads.sort(key=_BY_INDEX)
        del heads[self.options.candidates :]
        if heads != self._candidates:
            self._candidates = heads
            many = self.options.candidates
            slots = [(self._slots[job.gpus], self._numbers_of(job, rank(k, many))) for k, job in enumerate(heads)]
            self._grid.show(slots)

    def _numbers_of(self, job: ActiveJob, place: float = 1.0, nodes: int = 1) -> CellValues:
        """Return the content of a job's cell: of a candidate at that place, or of a job running on so many nodes."""
        key = self.trace.model[job.index], place, nodes
        numbers = self._numbers.get(key)
        if numbers is None:
            numbers = self._grid.numbers(shown(self.options.cells, self._features.of(key[0]), place, nodes))
            self._numbers[key] = numbers
        return numbers

    def _act(self, action: SupportsInt) -> bool:
        number = int(action) - 1
        if number == -1:
            return False
        which, placement = divmod(number, self._placements.size)
        if not 0 <= which < self.options.candidates:
            raise gymnasium.error.InvalidAction(f"{action!r} is not in {self.action_space}")
        where = None
        if which < len(self._candidates) and (self.options.starts == ANY or self._masks()[which][placement]):
            job = self._candidates[which]
            where = self._placements.place(job, placement)
        if where is None:
            self._invalid += 1
            return False
        weight = weight_of(self._features.of(self.trace.model[job.index]))
        self._grid.take(job.index, *where, self._numbers_of(job, nodes=len(where[0])), weight, self.loop.now)
        self.start(job, *where)
        self._queues_moved = True
        return True

    def _has_choice(self) -> bool:
        self._show_candidates()
        return any(map(self._placements.possible, self._candidates))

    def _has_none_before_events(self) -> bool:
        return self.options.preempt_below is None

    def _rate(self) -> float:
        loop = self.loop
        if self.options.reward == JCT:
            return -(loop.num_waiting + len(loop.running)) / loop.num_jobs
        return self._running_rate if loop.running else -self._w1 * self.options.idle_sensitivity

    def _changed(self) -> None:
        self._queues_moved = True
        running = self.loop.running
        if running:
            sensitivity = sum([1.0 / job.speed for job in running]) / len(running)
            busy = sum([job.occupied for job in running]) / self.cluster.num_gpus
            self._running_rate = -self._w1 * sensitivity + self._w2 * busy

    def _gone(self, job: ActiveJob) -> None:
        self._grid.give_back(job.index)

    def _nodes_changed(self) -> None:
        for node, up in enumerate(self.loop.pool.up):
            self._grid.set_node_up(node, bool(up))

    def _before_decision(self) -> None:
        """Stop the slowest job that is too slow, update the speeds, and repeat."""
        below = self.options.preempt_below
        while below is not None:
            slow = [job for job in self.loop.running if job.speed < below and not job.fixed]
            slow = [job for job in slow if self.loop.now - job.start >= self._after]
            if not slow:
                return
            self.stop(min(slow, key=_BY_SPEED))

    def _best_fit(self, job: ActiveJob) -> Where | None:
        pool = self.loop.pool
        found = pool.place(job.size, job.gpus, CONSOLIDATED)
        return (list(pool.chosen[:found]), list(pool.chosen_gpus[:found])) if found else None
