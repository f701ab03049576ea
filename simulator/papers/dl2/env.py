"""The environment of DL2 (Peng et al., TPDS 2021, section 4): workers and parameter servers for elastic jobs, slot by slot.

At the begin of a **slot** (20 minutes), all resources of jobs are free again. The agent allocates them in many inferences, one step
each, while time does not advance; then the cluster runs with this allocation until the next slot.

**State**: s = (x, d, e, r, w, u), an array (J, L + 5): a row for each of at most J concurrent jobs by arrival. x is one-hot over
the L types of `types` (all 0 for another model), d the slots that the job has run, e the epochs left (a share of the trace's column
`epochs`), r its share of the dominant resource, w and u its workers and servers in this slot. Rows without a job are 0. If there
are more than J jobs, the first J are served, then the next J with the remaining resources; a void action ends each batch.

**Action**: 3 i gives job i one worker, 3 i + 1 one server, 3 i + 2 one of each; 3 J is void. Impossible actions are masked
(`action_masks()`): no such job, no room, or the job has its maximum (the trace's `max_gpus`, of workers
and of servers). A batch ends at void or when no other action is possible; the slot ends with the last batch. A masked action counts
as void.

**Reward**: equation 1, the sum over jobs of epochs trained in the slot by all epochs of the job, given with the step that ends
the slot; 0 before. Over an episode, rewards add up to the number of finished jobs. (DL2 gives that reward to every sample of a
slot: `slot_ended` in info marks the end of slots; `action_rewards` then has the reward of each step of the slot, by the option
`reward`.)

**All-reduce** (section 7): a job whose trace has 0 in the column `num_ps` trains without servers. Its u is 0, and the actions that
would give it a server are masked. Its workers form a ring (`simulator.papers.dl2.servers`).

`speeds` selects the speeds of jobs. `engine`: by the placement of their tasks and the jobs on the same NICs
(`simulator.papers.dl2.servers`), and by the models of `slowdown`: DL2 learns online from these. `analytical`: by Optimus' model,
fitted to profiles, without interference and without `slowdown`: OfflineRL is trained in this environment (section 6.2).

Not in the paper, and chosen here: a worker is one GPU; nodes have `cpus_per_gpu` cores for each of their GPUs (those of its testbed
have 8 cores and 2 GPUs), workers and servers take 2 cores (it gives 1 to 4). Tasks are placed in the order of the actions, balanced
over nodes, and stay on the nodes of the last slot if possible. The worker and the server of one action go to one node if one has
room for both, as in the code that the paper's authors published (the paper does not say). A job trains with at least one server and
the trace's `min_gpus` workers; with less it waits, and its resources are idle. Changing a job costs 50 ms (hot scaling, "tens of
milliseconds"): `preempt_cost_s` of `settings`. A new job waits for the next slot, and the share of a finished job is idle until
then. Jobs that are not preemptible keep their resources.

Measured with the default options on one shared core: some 12,000 steps/s with a random agent and masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, SupportsInt

import gymnasium
import numpy as np

from policies.learned.dl2.state_columns import BOTH, WORKER
from simulator.envs.base import Mask, SchedulingEnv
from simulator.envs.options import cluster_of, options_of
from simulator.envs.outcome import outcome
from simulator.envs.space_parts import SpacePart
from simulator.errors import SettingError
from simulator.kernel.constants import NEVER
from simulator.kernel.job import ActiveJob
from simulator.papers.dl2.decisions import ElasticMapping
from simulator.papers.dl2.observation import MOST, Observation, State
from simulator.papers.dl2.options import ANALYTICAL, SLOT, ElasticOptions
from simulator.papers.dl2.perturbation import Perturbation, perturbed
from simulator.papers.dl2.progress import EpochProgress, whole_numbers
from simulator.papers.dl2.servers import FittedSpeed, Footprints, PlacedSpeed
from simulator.papers.dl2.slot import changes, count_change, empty_tasks, keep_fixed, workers_of
from simulator.papers.dl2.tasks import Tasks
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.registry import NONE
from simulator.traces.trace import Trace

_SLOTS_PER_JOB = 100


class ElasticAllocationEnv(SchedulingEnv[State, np.int64]):
    """`gymnasium.make("headway/ElasticAllocation-v0", **options)`; the options are the fields of ElasticOptions.

    Invariant between steps: `tasks` has what was given in this slot, to the jobs of all batches so far; `shown` shows one batch;
    some action besides void is possible, unless the episode is over.
    """

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode is not None:
            raise SettingError(f"render_mode is {render_mode!r}; this environment draws nothing, leave it out")
        self.options = asked = options_of(ElasticOptions, options)
        self.footprints = Footprints()
        super().__init__(replace(asked, slowdown=self._models(asked)))
        self._cpus = [int(gpus * asked.cpus_per_gpu) for gpus in self.cluster.gpus]
        self.num_cpus = max(sum(self._cpus), 1)
        self.shown = Observation(asked, self.cluster.num_gpus, self.num_cpus)
        self.tasks: Tasks
        self.progress: EpochProgress
        self.perturbation: Perturbation
        self.slot_jobs: list[ActiveJob] = []
        """Jobs that this slot is divided among, in order of arrival."""
        self._first = 0
        """Row of the batch's first job in `slot_jobs`."""
        self._slots = 0
        self._trained: dict[int, float] = {}
        """Normalized epochs of each job in the last slot, by row of the trace."""
        self._given: list[int] = []
        """Jobs to which the actions of this slot gave a task, by row of the trace; -1 for void."""
        self.observation_space = gymnasium.spaces.Box(0.0, self.shown.high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(self.shown.mask))

    def space_parts(self) -> Sequence[SpacePart]:
        """Return the columns of a job: s = (x, d, e, r, w, u) of section 4.1."""
        types = self.shown.d
        every = slice(None)

        def column(name: str, at: int, high: float, unit: str, means: str) -> SpacePart:
            return SpacePart(name, (every, slice(at, at + 1)), 0.0, high, unit, means)

        return (
            SpacePart(
                "x",
                (every, slice(None, types)),
                0.0,
                1.0,
                "one-hot",
                "model of the row's job; rows without a job are 0",
            ),
            column("d", self.shown.d, MOST, "slots", "slots in which the job has run"),
            column("e", self.shown.e, MOST, "epochs", "epochs left"),
            column("r", self.shown.r, 1.0, "share", "dominant share of the cluster given to it in this slot"),
            column("w", self.shown.w, MOST, "workers", "workers given in this slot"),
            column("u", self.shown.u, MOST, "servers", "parameter servers given in this slot"),
        )

    def actions_text(self) -> str:
        """Return the meaning of the actions."""
        return "3 i + 0, 1, 2: job i gets one worker, one parameter server, or one of each; the last ends the slot"

    def _models(self, asked: ElasticOptions) -> tuple[str | SlowdownModel, ...]:
        topology = cluster_of(asked.cluster).topology
        if asked.speeds == ANALYTICAL:
            # `none` excludes the speeds of nodes too.
            return (NONE, FittedSpeed(topology, asked.profiles, self.footprints))
        return (*asked.slowdown, PlacedSpeed(topology, asked.profiles, self.footprints))

    # Gymnasium

    def step(self, action: np.int64) -> tuple[State, float, bool, bool, dict[str, Any]]:
        """Apply one inference; the one that ends the slot runs it."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset")
        self.steps += 1
        reward, ended = 0.0, not (self._act(action) and self._has_choice()) and not self._show_next_batch()
        rewards: list[float] = []
        if ended:
            given, self._given = self._given, []
            reward = self._pass_time()
            rewards = self._rewards(given, reward)
        terminated = self._all_done()
        truncated = not terminated and self._is_too_long()
        info: dict[str, Any] = {"slot_ended": ended}
        if ended:
            info["action_rewards"] = rewards
        if terminated or truncated:
            self._over = True
            info["outcome"] = {**outcome(self.simulation), "steps": self.steps, "invalid_actions": self._invalid}
        return self._observe(), reward, terminated, truncated, info

    def shown_tasks(self) -> list[tuple[int, int]]:
        """Return the jobs that the state shows, by row: the job's row in the trace, and its servers in this slot."""
        shown = self.shown
        return [(job.index, int(shown.state[row, shown.u])) for row, job in enumerate(shown.batch)]

    def decision_mapping(self) -> ElasticMapping:
        """Return the mapping of policies' decisions to this environment's actions."""
        return ElasticMapping(self)

    def action_masks(self) -> Mask:
        """Return which actions are possible now; void always is."""
        return self.shown.mask.copy()

    # The slot

    def _begin(self) -> None:
        self.slot_jobs, self._first, self._slots, self._given = [], 0, 0, []
        self.footprints.of.clear()
        self.footprints.asked = whole_numbers(self.trace, "num_ps", self.trace.num_gpus.tolist(), least=0)
        self.progress = EpochProgress(
            self.trace, self.simulation, self.options.epochs, self.perturbation.per_stated_epoch
        )
        self.shown.begin(self.trace, self.progress, self.footprints)

    def _open_slot(self) -> None:
        """Free all resources of jobs, except those of jobs that must not be stopped."""
        self.slot_jobs = list(self.simulation.jobs())
        self.tasks = empty_tasks(self.options, self.cluster.gpus, self._cpus, self.loop.pool.up)
        keep_fixed(self.tasks, self.slot_jobs, self.footprints)
        self._first = -self.options.concurrent

    def _show_next_batch(self) -> bool:
        """Show the next J jobs that can be given a task; return False, and show none, if there are none."""
        size = self.options.concurrent
        while self._first + size < len(self.slot_jobs):
            self._first += size
            self.shown.show(self.slot_jobs[self._first : self._first + size], self.tasks)
            if self._has_choice():
                return True
        self.shown.show([], self.tasks)
        return False

    def _has_choice(self) -> bool:
        return self.shown.has_choice

    def _act(self, action: SupportsInt) -> bool:
        number, void = int(action), len(self.shown.mask) - 1
        if not 0 <= number <= void:
            raise gymnasium.error.InvalidAction(f"{action!r} is not in {self.action_space}")
        if number == void or not self.shown.mask[number]:
            self._invalid += number < void
            self._given.append(-1)
            return False
        row, kind = divmod(number, 3)
        job = self.shown.batch[row]
        self._given.append(job.index)
        workers, servers = workers_of(job), dict(self.footprints.of.get(job.index, {}))
        if kind == BOTH:
            self.tasks.give_pair(job.index, workers, servers)
        elif kind == WORKER:
            self.tasks.give_worker(job.index, workers)
        else:
            self.tasks.give_server(job.index, servers)
        self.shown.update(row)
        return True

    # The cluster

    def _pass_time(self) -> float:
        """Run the slot, and slots in which nothing can be given, until the next decision or the end; return the reward."""
        self._trained = {}
        while True:
            if self.slot_jobs:
                self._carry_out()
            self._to_next_slot()
            self._slots += 1
            for job, share in self.progress.trained().items():
                self._trained[job] = self._trained.get(job, 0.0) + share
            self._open_slot()
            if self._show_next_batch() or self._all_done() or self._is_too_long():
                return sum(self._trained.values())
            self._skipped += 1

    def _rewards(self, given: list[int], reward: float) -> list[float]:
        """Return the reward of each action of the slot that has ended."""
        if self.options.reward == SLOT:
            return [reward] * len(given)
        return [self._trained.get(job, 0.0) for job in given]

    def _carry_out(self) -> None:
        """Apply the allocation."""
        found = changes(self.slot_jobs, self.tasks, self.footprints, self.trace.min_gpus.tolist())
        for job in found.stops:
            self.loop.stop(job)
        for start in found.starts:
            count_change(start, self.footprints.of.get(start.job.index))
            self.footprints.of[start.job.index] = start.servers
            nodes = sorted(start.workers)
            self.start(start.job, nodes, [start.workers[node] for node in nodes])
        self._settle()
        self.progress.count_slot(self.loop.running)

    def _gone(self, job: ActiveJob) -> None:
        self.footprints.of.pop(job.index, None)

    def _to_next_slot(self) -> None:
        """Go on to the next slot that has a job, or to the end."""
        loop = self.loop
        slot = (loop.now // self._period + 1) * self._period if self.slot_jobs else 0
        while not self._all_done():
            if not loop.num_waiting and not loop.running:
                slot = max(slot, -(-loop.next_arrival // self._period) * self._period)
            loop.timer = slot if slot > loop.now else NEVER
            if not self.simulation.advance():
                return
            self._settle()
            if loop.now >= slot:
                return

    def _is_too_long(self) -> bool:
        if self.base_options.max_steps is not None:
            return super()._is_too_long()
        return self._slots >= _SLOTS_PER_JOB * len(self.trace)

    def _observe(self) -> State:
        return self.shown.state.copy()

    def _trace_of(self, options: dict[str, Any]) -> Trace:
        asked = self.options
        self.perturbation = perturbed(super()._trace_of(options), asked.speed_variation, asked.epoch_error)
        return self.perturbation.trace

    def _rate(self) -> float:
        return 0.0  # rewards are those of slots, see `step`
