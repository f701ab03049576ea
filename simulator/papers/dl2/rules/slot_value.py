"""The true reward of a slot for the tasks given so far, as far as it is known when the slot begins.

The reward is that of equation 1 at the speeds with which the slot begins: placement and neighbours on the NICs count, as in
`simulator.papers.dl2.servers.PlacedSpeed`; that jobs which finish make others faster, the cost of changes and the models of the
option `slowdown` do not. With `speeds="analytical"` the speeds are those of Optimus' model, which are the true ones there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policies.learned.dl2.state_columns import BOTH, WORKER
from simulator.kernel.job import ActiveJob
from simulator.papers.dl2.env import ElasticAllocationEnv
from simulator.papers.dl2.options import ANALYTICAL
from simulator.papers.dl2.servers import SpeedLaw, believed_step_s, law_of, nics_gbs, packed, units
from simulator.papers.dl2.slot import workers_of

_ALONE: tuple[int, ...] = ()


class SlotValue:
    """The reward of each job at the tasks given in this slot.

    Invariant: after `take`, `_values` and `_spread` are those of the environment's tasks. A job that cannot run has the value 0;
    it uses no NIC, and nor does a job on one node.
    """

    def __init__(self, env: ElasticAllocationEnv) -> None:
        """Begin with the tasks of all jobs of the slot."""
        self._env = env
        self._is_analytical = env.options.speeds == ANALYTICAL
        self._slot_ns = round(env.options.round_s * 1e9)
        self._nic_gbs = nics_gbs(env.cluster.topology)
        self._on_node: list[set[int]] = [set() for _ in self._nic_gbs]
        """Jobs on each node that run on several nodes."""
        self._jobs = {job.index: job for job in env.slot_jobs}
        self._spread: dict[int, tuple[int, ...]] = dict.fromkeys(self._jobs, _ALONE)
        for index in self._jobs:
            self._spread_again(index)
        self._values = {index: self._value_of(index) for index in self._jobs}

    def take(self, job: ActiveJob) -> None:
        """Follow the environment, which gave that job a task."""
        for index in self._spread_again(job.index):
            self._values[index] = self._value_of(index)

    def runs(self, job: int) -> bool:
        """Return whether the job of that row of the trace has tasks enough to train."""
        tasks = self._env.tasks
        has_servers = bool(tasks.servers(job)) or self._env.footprints.is_all_reduce(job)
        return has_servers and sum(tasks.workers(job).values()) >= self._env.trace.min_gpus[job]

    def gain(self, job: ActiveJob, kinds: Sequence[int]) -> float:
        """Return the reward that these actions for one job add to the slot, less what its neighbours lose.

        Negative infinity if there is no room for all of them.
        """
        given: list[tuple[int, bool]] = []
        fits = all(self._give(job, kind, given) for kind in kinds)
        gain = float("-inf")
        if fits:
            gain = sum(self._value_of(index) - self._values[index] for index in self._spread_again(job.index))
        for node, worker in reversed(given):
            self._env.tasks.take_back(job.index, node, worker=worker)
        self._spread_again(job.index)
        return gain

    def _give(self, job: ActiveJob, kind: int, given: list[tuple[int, bool]]) -> bool:
        """Place the tasks of one action and note them; return False if there is no room."""
        tasks, env = self._env.tasks, self._env
        if not tasks.room[kind]:
            return False
        workers, servers = workers_of(job), dict(env.footprints.of.get(job.index, {}))
        if kind == BOTH:
            of_worker, of_server = tasks.give_pair(job.index, workers, servers)
            given += [(of_worker, True), (of_server, False)]
        elif kind == WORKER:
            given.append((tasks.give_worker(job.index, workers), True))
        else:
            given.append((tasks.give_server(job.index, servers), False))
        return True

    def _spread_again(self, job: int) -> Iterable[int]:
        """Bring the nodes of a job up to date; return the jobs whose values may change by it."""
        tasks, before = self._env.tasks, self._spread[job]
        nodes = tasks.workers(job).keys() | tasks.servers(job).keys() if self.runs(job) else ()
        now = tuple(sorted(nodes)) if len(nodes) > 1 else _ALONE
        affected = {job}
        for node in {*before} ^ {*now}:
            affected |= self._on_node[node]
            self._on_node[node] ^= {job}
        self._spread[job] = now
        return sorted(affected)

    def _value_of(self, job: int) -> float:
        """Return the job's part of the slot's reward."""
        if not self.runs(job):
            return 0.0
        return self._env.progress.value_of(self._jobs[job], self._slot_ns * self._speed(job))

    def _speed(self, job: int) -> float:
        tasks, asked = self._env.tasks, (self._jobs[job].gpus, self._env.footprints.asked[job])
        workers, servers = tasks.workers(job), tasks.servers(job)
        counts = sum(workers.values()), sum(servers.values())
        if self._is_analytical:
            law = self._law(job, min(self._nic_gbs))
            return believed_step_s(law, *asked) / believed_step_s(law, *counts)
        law = self._law(job, min(self._nic_gbs[node] for node in self._spread[job] or workers))
        crowd = {node: len(self._on_node[node]) for node in self._spread[job]}
        best = packed(*asked, self._env.cluster.topology.max_gpus)
        ideal_s = law.step_s(*asked, units(*best, dict.fromkeys(best[0], 1)))
        return ideal_s / law.step_s(*counts, units(workers, servers, crowd))

    def _law(self, job: int, gbs: float) -> SpeedLaw:
        trace = self._env.trace
        profile = self._env.options.profiles.of(trace.model[job])
        return law_of(profile, int(trace.batch_size[job]), int(trace.num_gpus[job]), gbs)
