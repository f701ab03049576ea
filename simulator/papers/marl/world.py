"""MARL's world: batches of jobs, their placement task by task, and the time between two batches (sections III, IV and VI).

At the begin of each interval every scheduler has the tasks of the jobs that came to it in the interval before, in order of arrival,
a job's workers before its parameter servers. It decides on them one after the other: a task is placed on a GPU group of its
partition, or forwarded to another scheduler, behind the tasks there. A placed job runs to its end on the same groups. Then the jobs
run for one interval. A step takes

    computing (1 + S of the slowest worker) + transfers of the slowest pair                              (section VI-A)

with S of `interference` and the transfers of `traffic`.

The paper leaves open, and we chose:
- a job starts when all its tasks are placed. If a task can be neither placed nor forwarded, all tasks of its job are taken back,
  and the job waits for the next interval, where it comes before later jobs;
- speeds are those at the begin of an interval, and hold for all of it. A job can finish inside it, at the time that follows from
  its speed; its groups are free at the end of the interval, since no decision is made before.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from simulator.papers.marl.options import ALWAYS, NEVER, PROGRESS, MarlOptions
from simulator.papers.marl.state.data_center import DataCenter
from simulator.papers.marl.state.interference import of_workers
from simulator.papers.marl.state.jobs import Flags, Floats, Ints, Jobs
from simulator.papers.marl.state.placements import NOWHERE, Placements
from simulator.papers.marl.state.queues import Queues, Task
from simulator.papers.marl.state.traffic import Traffic


class World:
    """One data center in one episode.

    Actions of a scheduler are numbers: 0 to M - 1 place its first task on that group of its partition, M + s forwards it to
    scheduler s. Invariants between calls: a scheduler's first task has a possible action; a job has not arrived, or waits, or has
    tasks to be decided on, or runs, or is done.
    """

    def __init__(self, options: MarlOptions, center: DataCenter) -> None:
        self.options = options
        self.center = center
        self._coefficients = options.profiles.interference
        self.jobs: Jobs
        self.placed: Placements
        self.traffic: Traffic
        self.queues: Queues
        self.now = 0
        """The interval, from 0 on."""
        self.running: set[int] = set()
        self.trained: Floats
        """Steps that each job has trained."""
        self.finish_s: Floats
        """Finish of each job; infinite if it is not done."""
        self.progress: Floats
        """Share of its steps that each job trained in the last interval: the reward of its tasks (section IV-C)."""
        self.speed: Floats
        """Speed of each job in the last interval relative to computing alone; 0 if it did not run."""
        self.put_off = 0
        """Times that a job was put off to the next interval."""
        self.forwarded = 0
        """Number of forwarded tasks."""
        self.busy_s = 0.0
        """GPU-seconds in use."""
        self.versions = [0] * center.schedulers
        """Changes of each scheduler's jobs, groups or tasks: equal numbers, equal state."""
        self._waiting: list[int] = []
        self._arrived = 0
        self._without_room: set[int] = set()
        """Schedulers whose first task could only be forwarded when it was looked at last."""

    def begin(self, jobs: Jobs) -> None:
        """Begin an episode with these jobs; pass to the first interval that has a task."""
        center = self.center
        self.jobs = jobs
        self.placed = Placements.none(center, jobs, self.options.threads)
        self.traffic = Traffic(center, jobs)
        self.queues = Queues(center.schedulers)
        self.now = self.put_off = self.forwarded = self._arrived = 0
        self.busy_s = 0.0
        self.running, self._waiting, self._without_room = set(), [], set()
        self.trained = np.zeros(len(jobs))
        self.finish_s = np.full(len(jobs), np.inf)
        self.progress = np.zeros(len(jobs))
        self.speed = np.zeros(len(jobs))
        self._open()
        while self.queues.is_empty and not self.is_over:
            self.advance()

    # Decisions

    def head(self, scheduler: int) -> Task | None:
        """Return the task that a scheduler decides on next; None if it has none in this interval."""
        return self.queues.head(scheduler)

    def possible(self, scheduler: int) -> Flags:
        """Return which actions of a scheduler are possible (M + schedulers); none without a task."""
        task, groups = self.head(scheduler), self.center.groups_each
        found = np.zeros(groups + self.center.schedulers, dtype=np.bool_)
        if task is not None:
            found[:groups] = self.placed.room(task.job, task.column, self.center.groups_of(scheduler))
            found[groups:] = self._forwards(scheduler, task, bool(found[:groups].any()))
        return found

    def act(self, scheduler: int, action: int) -> None:
        """Place or forward the scheduler's first task. Raises ValueError for an impossible action."""
        if not self.possible(scheduler)[action]:
            raise ValueError(f"action {action} of scheduler {scheduler} is not possible")
        task, groups = self.queues.pop(scheduler), self.center.groups_each
        self.versions[scheduler] += 1
        if action < groups:
            self._place(task, scheduler * groups + action)
            self._settle([scheduler])
        else:
            self.forwarded += 1
            self.versions[action - groups] += 1
            self.queues.add(action - groups, [Task(task.job, task.column, task.forwards + 1)])
            self._settle([scheduler, action - groups])

    def advance(self) -> Ints:
        """Let the jobs run until an interval that has tasks, or the end; return the jobs that finished. For intervals without
        decisions. Raises ValueError while tasks wait."""
        if not self.queues.is_empty:
            raise ValueError("tasks wait for a decision")
        rows = np.array(sorted(self.running), dtype=np.int64)
        step_s = self.step_s(rows)
        interval_s, left = self.options.interval_s, self.jobs.steps[rows] - self.trained[rows]
        trained = np.minimum(left, interval_s / step_s)
        self.progress[:] = 0.0
        self.progress[rows] = trained / self.jobs.steps[rows]
        self.speed[:] = 0.0
        self.speed[rows] = self.jobs.compute_s[rows] / step_s
        self.trained[rows] += trained
        is_done = trained >= left
        done = rows[is_done]
        self.finish_s[done] = self.now * interval_s + (left * step_s)[is_done]
        self.busy_s += float(np.dot(self.jobs.workers[rows], trained * step_s))
        for job in done.tolist():
            self.running.remove(job)
            self.traffic.remove(job)
            self.placed.clear(job)
        self.now += 1
        self._open()
        return done

    # State

    @property
    def reward(self) -> Floats:
        """Reward of each job's decisions in the last interval, as the options say."""
        return self.progress if self.options.reward == PROGRESS else self.speed

    @property
    def is_done(self) -> bool:
        """True if all jobs are done."""
        return self._arrived == len(self.jobs) and not self.running and not self._waiting and self.queues.is_empty

    @property
    def is_late(self) -> bool:
        """True if the episode is as long as allowed."""
        return self.now >= self.options.max_intervals

    @property
    def is_over(self) -> bool:
        """True if no decision follows."""
        return self.is_done or self.is_late

    def step_s(self, rows: Ints) -> Floats:
        """Return the present seconds of a step of these running jobs."""
        slowest = of_workers(self.placed, rows, self._coefficients).max(axis=1, initial=0.0)
        found: Floats = self.jobs.compute_s[rows] * (1.0 + slowest) + self.traffic.seconds(rows)
        return found

    def present(self, scheduler: int) -> Ints:
        """Return the unfinished jobs of a scheduler in order of arrival: those that came to it, and those with tasks there."""
        groups = self.center.groups_of(scheduler)
        known = np.array(sorted({*self.running, *self._decided()}), dtype=np.int64)
        group = self.placed.group[known]
        is_here = ((group >= groups.start) & (group < groups.stop)).any(axis=1)
        is_here |= self.jobs.scheduler[known] == scheduler
        queued = self.queues.jobs(scheduler)
        is_here |= np.array([job in queued for job in known.tolist()], dtype=np.bool_)
        found: Ints = known[is_here]
        return found

    def _decided(self) -> set[int]:
        return set().union(*(self.queues.jobs(scheduler) for scheduler in range(self.center.schedulers)))

    # Parts of an interval

    def _open(self) -> None:
        """Give every scheduler the tasks of its waiting jobs."""
        self._change_all()
        upto = int(np.searchsorted(self.jobs.arrival, self.now, side="right"))
        ready = [*self._waiting, *range(self._arrived, upto)]
        self._arrived, self._waiting = upto, []
        for job in sorted(ready):
            tasks = [Task(job, column, 0) for column in range(int(self.jobs.tasks[job]))]
            self.queues.add(int(self.jobs.scheduler[job]), tasks)
        self._settle(range(self.center.schedulers))

    def _forwards(self, scheduler: int, task: Task, has_room: bool) -> Flags:
        """Return the schedulers to which a task can be forwarded: others that have room for it."""
        asked, count = self.options, self.center.schedulers
        found = np.zeros(count, dtype=np.bool_)
        if asked.forwarding == NEVER or task.forwards >= asked.most_forwards:
            return found
        if asked.forwarding == ALWAYS or not has_room:
            found[:] = self.placed.room(task.job, task.column, slice(None)).reshape(count, -1).any(axis=1)
            found[scheduler] = False
        return found

    def _settle(self, changed: Iterable[int]) -> None:
        """Put off the jobs of first tasks without a possible action. The schedulers that changed have another first task, or have
        less room, which concerns those in `_without_room` too."""
        todo = {*changed, *self._without_room}
        while todo:
            scheduler = min(todo)
            todo.remove(scheduler)
            self._without_room.discard(scheduler)
            task = self.head(scheduler)
            if task is None or self.placed.room(task.job, task.column, self.center.groups_of(scheduler)).any():
                continue
            self._without_room.add(scheduler)
            if not self._forwards(scheduler, task, has_room=False).any():
                self.put_off += 1
                self._change_all()
                todo.update(self.queues.drop(task.job))
                self.placed.clear(task.job)
                self._waiting.append(task.job)

    def _change_all(self) -> None:
        self.versions = [version + 1 for version in self.versions]

    def _place(self, task: Task, group: int) -> None:
        job = task.job
        self.placed.put(job, task.column, group)
        if (self.placed.group[job] != NOWHERE).sum() == self.jobs.tasks[job]:
            self.running.add(job)
            self.traffic.add(job, *self.placed.servers_of(job))
