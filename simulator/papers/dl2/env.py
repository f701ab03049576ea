"""The environment of DL2 (Peng et al., TPDS 2021, section 4): workers and parameter servers for elastic jobs, slot by slot.

At the begin of a **slot** (20 minutes), all resources of jobs are free again. The agent allocates them in many inferences, one step
each, while time does not advance; then the cluster runs with this allocation until the next slot.

**State**: s = (x, d, e, r, w, u), an array (J, L + 5): a row for each of at most J concurrent jobs by arrival. x is one-hot over
the L types of `types` (all 0 for another model), d the slots that the job has run, e the epochs left (a share of the trace's column
`epochs`), r its share of the dominant resource, w and u its workers and servers in this slot. Rows without a job are 0. If there
are more than J jobs, the first J are served, then the next J with the remaining resources; a void action ends each batch.

**Action**: 3 i gives job i one worker, 3 i + 1 one server, 3 i + 2 one of each; 3 J is void. Impossible actions are masked
(`action_mask` in info, and `action_masks()`): no such job, no room, or the job has its maximum (the trace's `max_gpus`, of workers
and of servers). A batch ends at void or when no other action is possible; the slot ends with the last batch. A masked action counts
as void.

**Reward**: equation 1, the sum over jobs of epochs trained in the slot by all epochs of the job, given with the step that ends
the slot; 0 before. Over an episode, rewards add up to the number of finished jobs. (DL2 gives that reward to every sample of a
slot: `slot_ended` in info marks the end of slots.)

`speeds` selects the speeds of jobs. `engine`: by the placement of their tasks and the jobs on the same NICs
(`simulator.papers.dl2.servers`), and by the models of `slowdown`: DL2 learns online from these. `analytical`: by Optimus' model,
fitted to profiles, without interference and without `slowdown`: OfflineRL is trained in this environment (section 6.2).

Not in the paper, and chosen here: a worker is one GPU; nodes have `cpus_per_gpu` cores for each of their GPUs (those of its testbed
have 8 cores and 2 GPUs), workers and servers take 2 cores (it gives 1 to 4). Tasks are placed in the order of the actions, balanced
over nodes, and stay on the nodes of the last slot if possible. A job trains with at least one server and the trace's `min_gpus`
workers; with less it waits, and its resources are idle. Changing a job costs 50 ms (hot scaling, "tens of milliseconds"):
`preempt_cost_s` of `settings`. A new job waits for the next slot, and the share of a finished job is idle until then. Jobs that are
not preemptible keep their resources.

Measured with the default options on one shared core: some 12,000 steps/s with a random agent and masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, SupportsInt

import gymnasium
import numpy as np
import numpy.typing as npt

from simulator.cluster.cluster import Cluster
from simulator.engine.settings import Settings
from simulator.envs.base import Mask, SchedulingEnv
from simulator.envs.options import ROUNDS, EnvOptions, check, cluster_of, options_of
from simulator.envs.outcome import outcome
from simulator.errors import SettingError
from simulator.kernel.constants import NEVER
from simulator.kernel.job import ActiveJob
from simulator.papers.dl2.decisions import ElasticMapping
from simulator.papers.dl2.servers import FittedSpeed, Footprints, PlacedSpeed
from simulator.papers.dl2.tasks import BALANCED, PACKED, Tasks, Where
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.profiles.model_profiles import ModelProfiles, key_of
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.dl2 import DL2, MODELS
from simulator.traces.generators.workload import Workload
from simulator.traces.trace import Trace

ENGINE, ANALYTICAL = "engine", "analytical"
State = npt.NDArray[np.float32]
_SLOTS_PER_JOB = 100
_MOST = 1e6
"""Slots and epochs that a state can show."""


@dataclass(frozen=True, kw_only=True)
class ElasticOptions(EnvOptions):
    """The options of `headway/ElasticAllocation-v0`."""

    traces: Workload | Sequence[Trace] = field(default_factory=DL2)
    cluster: Cluster | str = "12x8"
    profiles: ModelProfiles = field(default_factory=lambda: paper_profiles("dl2"))
    settings: Settings = field(default_factory=lambda: Settings(preempt_cost_s=0.05))
    round_s: float = 1200.0
    """Seconds of a slot."""
    max_steps: int | None = None
    """Maximum number of steps of an episode; None: 100 slots for each of its jobs."""
    concurrent: int = 40
    """Number J of jobs in a state."""
    types: tuple[str, ...] = MODELS
    """The L models that a state distinguishes."""
    speeds: str = ENGINE
    """engine or analytical."""
    placing: str = BALANCED
    """balanced (the paper's) or packed."""
    cpus_per_gpu: float = 4.0
    """Cores of a node for each of its GPUs."""
    worker_cpus: int = 2
    """Cores of a worker."""
    server_cpus: int = 2
    """Cores of a parameter server."""
    epochs: int = 100
    """Epochs of jobs whose trace gives none."""

    def __post_init__(self) -> None:
        """Raises SettingError for an impossible value."""
        super().__post_init__()
        check("speeds", self.speeds, (ENGINE, ANALYTICAL))
        check("placing", self.placing, (BALANCED, PACKED))
        check("decide", self.decide, (ROUNDS,))
        for name in ("concurrent", "worker_cpus", "server_cpus", "epochs"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)!r}; give at least 1")
        if not 0 < self.cpus_per_gpu < 1e6:
            raise SettingError(f"cpus_per_gpu is {self.cpus_per_gpu!r}; give a number above 0")
        if self.skip_forced:
            raise SettingError(
                "skip_forced is True; a slot in which nothing can be given is never asked about, leave it out"
            )


class ElasticAllocationEnv(SchedulingEnv[State, np.int64]):
    """`gymnasium.make("headway/ElasticAllocation-v0", **options)`; the options are the fields of ElasticOptions.

    Invariant between steps: `_tasks` has what was given in this slot, to the jobs of all batches so far; `_batch` are the jobs that
    the state shows; some action besides void is possible, unless the episode is over.
    """

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        if render_mode is not None:
            raise SettingError(f"render_mode is {render_mode!r}; this environment draws nothing, leave it out")
        self.options = asked = options_of(ElasticOptions, options)
        self._footprints = Footprints()
        super().__init__(replace(asked, slowdown=self._models(asked)))
        self._cpus = [int(gpus * asked.cpus_per_gpu) for gpus in self.cluster.gpus]
        self._type_of = {key_of(name): row for row, name in enumerate(asked.types)}
        size, types = asked.concurrent, len(asked.types)
        self._state: State = np.zeros((size, types + 5), dtype=np.float32)
        # Columns of the state after the types
        self._d, self._e, self._r, self._w, self._u = range(types, types + 5)
        self._most = np.zeros(size, dtype=np.float32)
        self._mask: Mask = np.zeros(3 * size + 1, dtype=np.bool_)
        self._jobs: list[ActiveJob] = []
        self._batch: list[ActiveJob] = []
        self._first = 0
        self._tasks: Tasks
        self._slots_run: dict[int, int] = {}
        self._epochs: list[int] = []
        self._trained = 0.0
        self._slots = 0
        high = np.zeros_like(self._state)
        high[:, :types], high[:, self._d :] = 1.0, _MOST
        high[:, self._r] = 1.0
        self.observation_space = gymnasium.spaces.Box(0.0, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(3 * size + 1)

    def _models(self, asked: ElasticOptions) -> tuple[str | SlowdownModel, ...]:
        topology = cluster_of(asked.cluster).topology
        if asked.speeds == ANALYTICAL:
            return (FittedSpeed(topology, asked.profiles, self._footprints),)
        names = [each for each in asked.slowdown if each != "none"]
        return (*names, PlacedSpeed(topology, asked.profiles, self._footprints))

    # Gymnasium

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[State, dict[str, Any]]:
        """Begin an episode; the options are those of all environments."""
        seen, info = super().reset(seed=seed, options=options)
        return seen, {**info, "action_mask": self._mask.astype(np.int8)}

    def step(self, action: np.int64) -> tuple[State, float, bool, bool, dict[str, Any]]:
        """Apply one inference; the one that ends the slot runs it."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset")
        self.steps += 1
        reward, ended = 0.0, False
        if not (self._act(action) and self._has_choice()) and not self._show_next_batch():
            reward, ended = self._pass_time(), True
        terminated = self._all_done()
        truncated = not terminated and self._is_too_long()
        info: dict[str, Any] = {"action_mask": self._mask.astype(np.int8), "slot_ended": ended}
        if terminated or truncated:
            self._over = True
            info["outcome"] = {**outcome(self.simulation), "steps": self.steps, "invalid_actions": self._invalid}
        return self._observe(), reward, terminated, truncated, info

    def shown_tasks(self) -> list[tuple[int, int]]:
        """Return the jobs that the state shows, by row: the job's row in the trace, and its servers in this slot."""
        return [(job.index, int(self._state[row, self._u])) for row, job in enumerate(self._batch)]

    def decision_mapping(self) -> ElasticMapping:
        """Return the mapping of policies' decisions to this environment's actions."""
        return ElasticMapping(self)

    def action_masks(self) -> Mask:
        """Return which actions are possible now; void always is."""
        return self._mask.copy()

    # The slot

    def _begin(self) -> None:
        self._jobs, self._batch, self._first = [], [], 0
        self._slots_run, self._trained, self._slots = {}, 0.0, 0
        self._footprints.of.clear()
        extra, jobs = self.trace.extra, len(self.trace)
        self._footprints.asked = _whole(extra.get("num_ps"), self.trace.num_gpus.tolist(), "num_ps")
        self._epochs = _whole(extra.get("epochs"), [self.options.epochs] * jobs, "epochs")

    def _open_slot(self) -> None:
        """Free all resources of jobs, except those of jobs that must not be stopped."""
        options = self.options
        self._jobs = list(self.simulation.jobs())
        self._tasks = Tasks(
            self.cluster.gpus,
            self._cpus,
            self.loop.pool.up,
            worker_cpus=options.worker_cpus,
            server_cpus=options.server_cpus,
            rule=options.placing,
        )
        for job in self._jobs:
            if job.fixed and job.occupied:
                self._tasks.hold(job.index, self._workers_of(job), dict(self._footprints.of[job.index]))
        self._first = -options.concurrent

    def _show_next_batch(self) -> bool:
        """Show the next J jobs that can be given a task; return False, and show none, if there are none."""
        size = self.options.concurrent
        while self._first + size < len(self._jobs):
            self._first += size
            self._show(self._jobs[self._first : self._first + size])
            if self._has_choice():
                return True
        self._show([])
        return False

    def _show(self, jobs: list[ActiveJob]) -> None:
        self._batch = jobs
        self._state[:] = 0
        self._most[:] = 0
        for row, job in enumerate(jobs):
            kind = self._type_of.get(key_of(self.trace.model[job.index]))
            if kind is not None:
                self._state[row, kind] = 1.0
            self._state[row, self._d] = min(self._slots_run.get(job.index, 0), _MOST)
            self._state[row, self._e] = min(self._epochs[job.index] * job.left / job.work, _MOST)
            if not (job.fixed and job.occupied):
                self._most[row] = self.trace.max_gpus[job.index]
            self._show_tasks(row)
        self._update_mask()

    def _show_tasks(self, row: int) -> None:
        """Show the tasks of that job."""
        options, job = self.options, self._batch[row].index
        workers, servers = sum(self._tasks.workers(job).values()), sum(self._tasks.servers(job).values())
        cpus = workers * options.worker_cpus + servers * options.server_cpus
        self._state[row, self._w], self._state[row, self._u] = workers, servers
        self._state[row, self._r] = max(workers / self.cluster.num_gpus, cpus / max(sum(self._cpus), 1))

    def _update_mask(self) -> None:
        """Set the mask of possible actions."""
        worker, server, both = self._tasks.room
        mask = self._mask[:-1].reshape(-1, 3)
        np.less(self._state[:, self._w :], self._most[:, None], out=mask[:, :2])
        np.logical_and(mask[:, 0], mask[:, 1], out=mask[:, 2])
        if not (worker and server and both):
            mask &= (worker, server, both)
        self._mask[-1] = True

    def _has_choice(self) -> bool:
        return bool(self._mask[:-1].any())

    def _act(self, action: SupportsInt) -> bool:
        number = int(action)
        if not 0 <= number < len(self._mask):
            raise gymnasium.error.InvalidAction(f"{action!r} is not in {self.action_space}")
        row, kind = divmod(number, 3)
        if number == len(self._mask) - 1 or not self._mask[number]:
            self._invalid += number < len(self._mask) - 1
            return False
        job = self._batch[row]
        if kind != 1:
            self._tasks.give_worker(job.index, self._workers_of(job), with_server=kind == 2)
        if kind != 0:
            self._tasks.give_server(job.index, dict(self._footprints.of.get(job.index, {})))
        self._show_tasks(row)
        self._update_mask()
        return True

    def _workers_of(self, job: ActiveJob) -> Where:
        """Return the job's tasks since the last slot."""
        return dict(zip(job.nodes, job.counts, strict=True)) if job.occupied else {}

    # The cluster

    def _pass_time(self) -> float:
        """Run the slot, and slots in which nothing can be given, until the next decision or the end; return the reward."""
        before = self._trained
        while True:
            if self._jobs:
                self._carry_out()
            self._to_next_slot()
            self._slots += 1
            self._trained = self._epochs_trained()
            self._open_slot()
            if self._show_next_batch() or self._all_done() or self._is_too_long():
                return self._trained - before
            self._skipped += 1

    def _carry_out(self) -> None:
        """Apply the allocation."""
        coming = []
        for job in self._jobs:
            workers, servers = self._tasks.workers(job.index), self._tasks.servers(job.index)
            if job.occupied:
                if workers == self._workers_of(job) and servers == self._footprints.of[job.index]:
                    continue
                self.loop.stop(job)
            if servers and sum(workers.values()) >= self.trace.min_gpus[job.index]:
                coming.append((job, workers, servers))
        for job, workers, servers in coming:
            self._count_change(job, workers, servers)
            self._footprints.of[job.index] = servers
            nodes = sorted(workers)
            self.start(job, nodes, [workers[node] for node in nodes])
        self._settle()
        for job in self.loop.running:
            self._slots_run[job.index] = self._slots_run.get(job.index, 0) + 1

    def _count_change(self, job: ActiveJob, workers: Where, servers: Where) -> None:
        """Start the job; if it was stopped only for that, count a resize or a move instead of a preemption."""
        before = self._footprints.of.get(job.index)
        if before is None:
            return
        job.stops -= 1
        if sum(workers.values()) == job.last_occupied and sum(servers.values()) == sum(before.values()):
            job.moves += 1
        else:
            job.resizes += 1

    def _gone(self, job: ActiveJob) -> None:
        self._footprints.of.pop(job.index, None)

    def _to_next_slot(self) -> None:
        """Go on to the next slot that has a job, or to the end."""
        loop = self.loop
        slot = (loop.now // self._period + 1) * self._period if self._jobs else 0
        while not self._all_done():
            if not loop.num_waiting and not loop.running:
                slot = max(slot, -(-loop.next_arrival // self._period) * self._period)
            loop.timer = slot if slot > loop.now else NEVER
            if not self.simulation.advance():
                return
            self._settle()
            if loop.now >= slot:
                return

    def _epochs_trained(self) -> float:
        """Return the trained epochs of all jobs, finished ones too, as shares of their epochs."""
        under_way = sum([1.0 - job.left / job.work for job in self.simulation.jobs()])
        return len(self.simulation.finished.index) + under_way

    def _is_too_long(self) -> bool:
        if self.world.max_steps is not None:
            return super()._is_too_long()
        return self._slots >= _SLOTS_PER_JOB * len(self.trace)

    def _observe(self) -> State:
        return self._state.copy()

    def _rate(self) -> float:
        return 0.0  # rewards are those of slots, see `step`


def _whole(texts: Sequence[str] | None, otherwise: list[int], column: str) -> list[int]:
    """Read a column of whole numbers from 1 on, or return the default if the trace has none. Raises SettingError."""
    if texts is None:
        return otherwise
    if not all(text.isdecimal() and int(text) > 0 for text in texts):
        wrong = next(text for text in texts if not (text.isdecimal() and int(text) > 0))
        raise SettingError(f"the trace's column {column} has {wrong!r}; give whole numbers from 1 on, or leave it out")
    return [int(text) for text in texts]
