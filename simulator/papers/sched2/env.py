"""The environment of SCHED2 (Luan et al., GLOBECOM 2019, section III): it chooses which of the first J waiting jobs starts next.

**State**, a vector of N M + (k + 2) J + 4 numbers (table I; `policies.learned.sched2.state` finds its parts): hours until each GPU
of each node comes free, 0 if it is free; for each of the first J = 10 waiting jobs, in order of submission, its hours under k = 4
placements from concentrated to scattered (`policies.learned.sched2.state.placements`), its GPUs, and the hours that it has
waited; for the other waiting jobs their number, and their mean GPUs, ideal time and wait. GPUs are counted in nodes (8 GPUs of 8:
1), jobs in J. All numbers of a missing job are 0.

**Action**: 0 is the paper's void, 1 to J start that job. Time does not advance until void; then it advances to the next event (an
arrival or a finish; while no job waits there is no decision). Jobs that do not fit are masked; a masked action is void. Void is
masked while nothing runs and a job would fit: no placement will ever be better, and the job would wait for ever.

**Placement**: packing (`simulator.papers.sched2.packing`). Jobs are never stopped.

**Reward**: starting job j earns E_j = ideal time / (wait + actual time) (equation 2), void 0. The actual time is that under the
job's placement, as if nothing changed until its end. If something changes (jobs slow each other down, a node fails), the difference
is paid when the job ends: the sum over an episode is always that of the true E_j; divided by the number of jobs it is
`effectiveness` of the outcome. There are two other rewards:

- `jct` is minus the active jobs' share of all jobs, which adds up to -(average JCT / round_s);
- `completions` is exp(-actual time / horizon) for a start: discounted by exp(-elapsed / horizon) it adds up to the sum of
  exp(-finish / horizon) over jobs, which is largest for the earliest finishes, and so the shortest JCTs. It has no constant part.
  `elapsed` in a step's info is the time that passed, in units of `round_s`.

Not in the paper, and chosen here: units; a job's profile is the time of its whole run (without it equation 2 could not be
predicted: the paper's "performance number" is that of a mini-batch, and its state has no number of mini-batches); a node's GPUs are
sorted by the time left; decisions at which only void is possible are skipped (except with `skip_forced=False`); for a job that
failed with a node, the times of the remaining work are shown. `window='widest'` shows J jobs of the whole queue
(`policies.learned.sched2.state.window`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Any, SupportsInt

import gymnasium
import numpy as np

from policies.learned.sched2.state.features import Features, Rule
from policies.learned.sched2.state.placements import fewest_nodes
from policies.learned.sched2.state.state_columns import ABSENT, JOB_NUMBERS, REST_NUMBERS, State, StateColumns
from policies.learned.sched2.state.window import FIRST, WINDOWS, chosen
from simulator.cluster.cluster import Cluster
from simulator.engine.queue import first_waiting
from simulator.engine.settings import Settings
from simulator.envs.base import Mask, SchedulingEnv
from simulator.envs.options import EVENTS, EnvOptions, check, options_of
from simulator.envs.space_parts import SpacePart
from simulator.errors import SettingError
from simulator.kernel.job import ActiveJob
from simulator.papers.sched2.backlog import HOUR_NS, Backlog
from simulator.papers.sched2.decisions import Sched2Mapping
from simulator.papers.sched2.dry_runs import DryRuns
from simulator.papers.sched2.free_times import FreeTimes
from simulator.papers.sched2.packing import pack
from simulator.results.result import Result
from simulator.results.timeline import Timeline
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.placement.locality import Locality
from simulator.slowdown.placement.node_speed import NodeSpeed
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.sched2 import Sched2
from simulator.traces.generators.workload import Workload
from simulator.traces.trace import Trace

EFFECTIVENESS, COMPLETIONS, JCT = "effectiveness", "completions", "jct"
_MOST = 1e9
"""A bound on hours, nodes and J that no state reaches."""


@dataclass(frozen=True, kw_only=True)
class Sched2Options(EnvOptions):
    """The options of `headway/Sched2-v0`."""

    traces: Workload | Sequence[Trace] = field(default_factory=Sched2)
    cluster: Cluster | str = "15x8"
    slowdown: Sequence[str | SlowdownModel] = ("locality",)
    profiles: ModelProfiles = field(default_factory=lambda: paper_profiles("sched2"))
    settings: Settings = field(default_factory=lambda: Settings(record=True))
    """Fragmentation needs recorded runs; without them `fragmentation` is NaN."""
    decide: str = EVENTS
    skip_forced: bool = True
    candidates: int = 10
    """Number J of jobs in a state."""
    window: str = FIRST
    """The J jobs shown: first (the paper's) or widest."""
    reward: str = EFFECTIVENESS
    """effectiveness (the paper's), completions or jct."""
    horizon_h: float = 10.0
    """Horizon of the reward `completions`."""

    def __post_init__(self) -> None:
        """Raises SettingError for an impossible value."""
        super().__post_init__()
        check("reward", self.reward, (EFFECTIVENESS, COMPLETIONS, JCT))
        check("window", self.window, WINDOWS)
        if not 0 < self.horizon_h < _MOST:
            raise SettingError(f"horizon_h is {self.horizon_h!r}; give hours, more than 0")
        if self.candidates < 1:
            raise SettingError(f"candidates is {self.candidates!r}; give at least 1")
        if self.settings.estimates.kind != "true":
            raise SettingError(
                f"estimates are {self.settings.estimates.kind}; this environment shows true times, as profiles have them"
            )


class Sched2Env(SchedulingEnv[State, np.int64]):
    """`gymnasium.make("headway/Sched2-v0", **options)`; the options are the fields of Sched2Options.

    Invariants between steps: `_free` says of every GPU when it comes free at present speeds; `_paid[j]` is the finish
    for which job j has been rewarded so far, and `_earned` is 0.
    """

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode is not None:
            raise SettingError(f"render_mode is {render_mode!r}; this environment draws nothing, leave it out")
        self.options = asked = options_of(Sched2Options, options)
        super().__init__(asked)
        self._free = FreeTimes(self.cluster.gpus)
        models = self._slowdowns.fresh()
        self._dry_runs = DryRuns(self.cluster.topology, models)
        self._others_stay = all(isinstance(model, Locality | NodeSpeed) for model in models)
        """True if no job's speed depends on other jobs."""
        self._backlog: Backlog
        self._candidates: list[ActiveJob] = []
        self._queues_moved = True
        self._arrived = 0
        self._paid: dict[int, int] = {}
        self._step_begin = 0
        self._earned = 0.0
        self.columns = StateColumns(len(self.cluster.gpus), self._free.width, asked.candidates)
        self._features = Features(self.columns)
        self._seen = np.zeros(self.columns.size)
        self._gpus_seen, self._jobs_seen, self._rest_seen = self.columns.split(self._seen)
        self.observation_space = gymnasium.spaces.Box(ABSENT, _MOST, (self.columns.size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(1 + asked.candidates)

    def space_parts(self) -> Sequence[SpacePart]:
        """Return the parts of table I."""
        columns = self.columns
        jobs, rest = columns.nodes * columns.gpus, columns.size - REST_NUMBERS
        times = JOB_NUMBERS - 2
        return (
            SpacePart(
                "GPUs",
                (slice(None, jobs),),
                ABSENT,
                _MOST,
                "hours",
                f"until each GPU is free, {columns.gpus} for each node; {ABSENT:g} for an absent one",
            ),
            SpacePart(
                "jobs",
                (slice(jobs, rest),),
                0.0,
                _MOST,
                "hours, GPUs",
                f"for each candidate: hours to run in each of {times} placements, GPUs, hours waited; 0 without a job",
            ),
            SpacePart(
                "rest",
                (slice(rest, None),),
                0.0,
                _MOST,
                "jobs, GPUs, hours",
                "the jobs behind the candidates: how many, and means of GPUs, hours to run, hours waited",
            ),
        )

    def actions_text(self) -> str:
        """Return the meaning of the actions."""
        return "0 waits; 1 + j starts candidate j"

    @property
    def candidates(self) -> Sequence[ActiveJob]:
        """Return the jobs that can be chosen now, in the order of the actions."""
        self._update_window()
        return self._candidates

    def decision_mapping(self) -> Sched2Mapping:
        """Return the mapping of policies' decisions to this environment's actions."""
        return Sched2Mapping(self)

    def fewest_nodes(self, gpus: int) -> int:
        """Return the nodes of a job with so many GPUs at its best locality; on more nodes its locality is relaxed (table III)."""
        return fewest_nodes(self.cluster.gpus, gpus)

    def timeline(self, bins: int = 100) -> Timeline:
        """Return fragmentation and requested GPUs over the episode so far (figure 9)."""
        return Timeline.of(Result.of(self.simulation, "agent", wall_s=0.0), self.loop.now, bins)

    # Gymnasium

    def step(self, action: np.int64) -> tuple[State, float, bool, bool, dict[str, Any]]:
        """Start a job, or advance to the next decision; the reward is what this earned."""
        self._step_begin = self.loop.now
        seen, reward, terminated, truncated, info = super().step(action)
        reward, self._earned = reward + self._earned, 0.0
        return seen, reward, terminated, truncated, info

    def action_masks(self) -> Mask:
        """Return which actions are possible now."""
        self._update_window()
        free = self.loop.pool.total
        fits = [job.gpus <= free for job in self._candidates]
        missing = bytes(self.options.candidates - len(fits))
        may_wait = bool(self.loop.running) or True not in fits
        return np.frombuffer(bytearray(b"".join((bytes((may_wait, *fits)), missing))), dtype=np.bool_)

    def play(self, rules: Sequence[Rule], seeds: Sequence[int]) -> list[list[dict[str, float]]]:
        """Play an episode with each rule on the trace that each seed draws: outcomes, by seed and rule.

        A rule has a weight for each feature of a candidate (`policies.learned.sched2.state`): the candidate with the highest
        score starts, unless void, with score 0, is higher. If not all jobs finished, the episode was cut off.
        """
        return [[self._played(rule, seed) for rule in rules] for seed in seeds]

    def _played(self, rule: Rule, seed: int) -> dict[str, float]:
        rule = np.ascontiguousarray(rule, dtype=np.float64)
        seen, _ = self.reset(seed=seed)
        while True:
            action = self._features.action(rule, seen, self.action_masks().view(np.uint8))
            seen, _, terminated, truncated, info = self.step(np.int64(action))
            if terminated or truncated:
                outcome: dict[str, float] = info["outcome"]
                return outcome

    # The episode

    def _begin(self) -> None:
        trace = self.trace
        self._free.reset()
        self._candidates, self._queues_moved, self._arrived = [], True, 0
        self._paid, self._earned, self._step_begin = {}, 0.0, 0
        kinds = zip(trace.model, trace.batch_size.tolist(), trace.num_gpus.tolist(), strict=True)
        factors = np.array([self._dry_runs.times(*kind) for kind in kinds])
        self._backlog = Backlog(trace, factors, self.columns.gpus)

    def _observe(self) -> State:
        self._update_window()
        loop, count = self.loop, len(self._candidates)
        self._free.show(loop.now, self._gpus_seen)
        self._jobs_seen[count:] = 0.0
        self._rest_seen[:] = 0.0
        if count:
            shown = self._backlog.show([job.index for job in self._candidates], loop.now, self._jobs_seen)
            more = loop.num_waiting - count
            if more:
                self._rest_seen[0] = more / self.columns.candidates
                self._rest_seen[1:] = self._backlog.rest(more, shown, loop.arrived, loop.now)
        return self._seen.astype(np.float32)

    def _update_window(self) -> None:
        """Update the first jobs of the queue, if it has changed."""
        if self._queues_moved or self.loop.arrived != self._arrived:
            self._queues_moved, self._arrived = False, self.loop.arrived
            most, window = self.options.candidates, self.options.window
            jobs = first_waiting(self.loop, most if window == FIRST else self.loop.num_waiting)
            if window != FIRST:
                sizes, left = np.array([(job.gpus, job.remaining()) for job in jobs], dtype=np.int64).reshape(-1, 2).T
                jobs = [jobs[place] for place in chosen(window, most, sizes, left).tolist()]
            self._candidates = jobs

    def _act(self, action: SupportsInt) -> bool:
        number = int(action)
        if not 0 <= number <= self.options.candidates:
            raise gymnasium.error.InvalidAction(f"{action!r} is not in {self.action_space}")
        self._update_window()
        job = self._candidates[number - 1] if 0 < number <= len(self._candidates) else None
        where = pack(self.loop.pool, job) if job is not None else None
        if job is None or where is None:
            self._invalid += number > 0 or not self._may_wait()
            return False
        self._backlog.started(job)
        self.start(job, *where)
        self._free.take(job.index, *where)
        self._queues_moved = True
        self._settle()
        if self._others_stay:
            self._free.follow([job])
        self._pay(job, job.finish)
        return True

    def _has_choice(self) -> bool:
        free = self.loop.pool.total
        if not free:
            return False
        self._update_window()
        return True in [job.gpus <= free for job in self._candidates]

    def _may_wait(self) -> bool:
        return bool(self.loop.running) or not self._has_choice()

    def _pay(self, job: ActiveJob, finish: int) -> None:
        """Add to the reward of this step what the job earns if it ends then, less what it has earned before.

        Both are as of now: what was paid for another finish is discounted to the present too.
        """
        before = self._paid.get(job.index)
        self._earned += self._worth(job, finish) - (0.0 if before is None else self._worth(job, before))
        self._paid[job.index] = finish

    def _worth(self, job: ActiveJob, finish: int) -> float:
        """Return what a job that ends then earns altogether, as of the begin of this step, where its reward counts."""
        match self.options.reward:
            case "effectiveness":
                return job.work / (finish - job.submit)
            case "completions":
                return exp((self._step_begin - finish) / (self.options.horizon_h * HOUR_NS))
            case _:
                return 0.0

    def _rate(self) -> float:
        if self.options.reward != JCT:
            return 0.0
        return -(self.loop.num_waiting + len(self.loop.running)) / self.loop.num_jobs

    def _gone(self, job: ActiveJob) -> None:
        self._free.give_back(job.index)
        if job.left:
            self._backlog.again(job)
            self._queues_moved = True
        else:
            self._pay(job, self.loop.now)

    def _changed(self) -> None:
        if not self._others_stay:
            self._free.follow(self.loop.running)

    def _nodes_changed(self) -> None:
        for node, up in enumerate(self.loop.pool.up):
            self._free.set_up(node, bool(up))
