"""A program that measures environment steps per second.

`python -m simulator.papers.bench [--env NAME] [--repeat N] [--workers W] [--per-worker N] [--slowdown NAME ...]`

One environment is timed on an episode of random possible actions, drawn before and then replayed. Every step counts with its best
time over all replays, the clock's own included, since other programs on the machine only add to it. `with masks` adds
`action_masks` at every step, as training with masks does.

The vectorized form draws its actions from the masks as it goes. It runs in turn with the same environments in one process, which
do the same (same seeds, same actions) without workers: each counts with the best of its runs. The ratio of steps/s needs free
cores. The two figures after it are also valid where other programs use the machine. *By CPU* is the ratio of CPU times on the
critical path: at every step, the CPU time of the owner plus that of the slowest worker; only the time to wake up is left out.
*Overhead* is the CPU time that workers add to a step of all environments, measured with environments that do nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import sub
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from policies.model import FloatColumn
from simulator.envs.base import Cells, Mask, SchedulingEnv
from simulator.envs.shared_memory import Blocks
from simulator.envs.vector import ProcessVectorEnv
from simulator.envs.worker import Env, WorkerEnvs
from simulator.papers.contention_rl.env import ContentionEnv
from simulator.papers.sched2.env import Sched2Env
from simulator.traces.generators.sched2 import Sched2

Timed = SchedulingEnv[Cells, np.int64]
Make = Callable[[], Timed]
SEED = 1
_WAIT_SHARE = 0.2


def record(env: Timed) -> list[np.int64]:
    """Play an episode of random possible actions, a fifth of which wait; return the actions."""
    rng = np.random.default_rng(SEED)
    env.reset(seed=SEED)
    actions: list[np.int64] = []
    over = False
    while not over:
        possible = np.flatnonzero(env.action_masks())
        # If waiting is impossible, the first entry is another action.
        waits = possible[0] == 0 and (len(possible) == 1 or rng.random() < _WAIT_SHARE)
        actions.append(np.int64(0) if waits else rng.choice(possible[possible > 0]))
        _, _, terminated, truncated, _ = env.step(actions[-1])
        over = terminated or truncated
    return actions


def replay(env: Timed, actions: Sequence[np.int64], *, masks: bool) -> FloatColumn:
    """Return the seconds of each of these steps, without the reset before them."""
    env.reset(seed=SEED)
    step, action_masks, clock = env.step, env.action_masks, time.perf_counter
    times = [clock()]
    for action in actions:
        if masks:
            action_masks()
        step(action)
        times.append(clock())
    return np.diff(times)


def best(repeat: int, measure: Callable[[], FloatColumn]) -> FloatColumn:
    """Return the minimum of each entry over several measurements."""
    least = measure()
    for _ in range(repeat - 1):
        least = np.minimum(least, measure())
    return least


class Idle(gymnasium.Env[Cells, np.int64]):
    """An environment that does nothing, with the spaces of a real one."""

    def __init__(self, make: Make) -> None:
        model = make()
        self.observation_space, self.action_space = model.observation_space, model.action_space
        self._seen, _ = model.reset(seed=SEED)
        self._mask = model.action_masks()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Cells, dict[str, Any]]:
        """Return a constant observation."""
        super().reset(seed=seed, options=options)
        return self._seen, {}

    def step(self, action: np.int64) -> tuple[Cells, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        """Return a constant step."""
        return self._seen, 0.0, False, False, {}

    def action_masks(self) -> Mask:
        """Return a constant mask."""
        return self._mask


class OneProcess:
    """Environments that do the work of ProcessVectorEnv in this process."""

    def __init__(self, make: Callable[[], Env], num_envs: int) -> None:
        envs = [make() for _ in range(num_envs)]
        self._views = Blocks.of(multiprocessing.get_context("spawn"), num_envs, envs[0]).views()
        self._rows = WorkerEnvs(envs, 0, self._views, AutoresetMode.NEXT_STEP)
        self._seeds = range(SEED, SEED + num_envs)

    def reset(self) -> None:
        """Reset all environments."""
        self._rows.reset(self._seeds, None)

    def step(self, actions: npt.NDArray[np.int64]) -> object:
        """Step all environments."""
        views = self._views
        views.actions[:] = actions
        self._rows.step()
        return views.observed(), views.rewards.copy(), views.terminated.copy(), views.truncated.copy()

    def action_masks(self) -> Mask:
        """Return the masks of all environments."""
        assert self._views.masks is not None
        return self._views.masks.copy()


class Batch(Protocol):
    """Environments that step together."""

    def step(self, actions: npt.NDArray[np.int64]) -> object:
        """Step all environments."""

    def action_masks(self) -> Mask:
        """Return the masks of all environments."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a number of steps of all environments."""

    wall_s: float
    cpu_s: float
    """CPU time of all processes together."""
    path_s: float
    """CPU time of the owner and, at every step, of the worker that needed most."""

    def best(self, other: Cost) -> Cost:
        """Return the minimum of each figure."""
        return Cost(min(self.wall_s, other.wall_s), min(self.cpu_s, other.cpu_s), min(self.path_s, other.path_s))


def drive(batch: Batch, draws: npt.NDArray[np.float32], turns: int, processes: Sequence[int]) -> Cost:
    """Measure the cost of random steps in these processes, the owner first."""
    begin, path_s = time.perf_counter(), 0.0
    before = first = list(map(cpu_s, processes))
    for turn in range(turns):
        batch.step((draws[turn % len(draws)] * batch.action_masks()).argmax(axis=1))
        now = list(map(cpu_s, processes))
        owner_s, *workers_s = map(sub, now, before)
        path_s += owner_s + max(workers_s, default=0.0)
        before = now
    return Cost(time.perf_counter() - begin, sum(before) - sum(first), path_s)


def cpu_s(process: int) -> float:
    """Return the CPU time of a process until now, from its clock as numbered by clock_getcpuclockid(3) on Linux."""
    return time.clock_gettime(~process << 3 | 2)


@dataclass(frozen=True, slots=True)
class Extent:
    """Numbers of workers, environments, steps and runs of the vectorized measurement."""

    workers: int
    per_worker: int
    turns: int
    """Number of steps of a run."""
    rounds: int
    """Number of runs, of which the best counts."""

    @property
    def num_envs(self) -> int:
        """Number of environments of all workers."""
        return self.workers * self.per_worker


def compare(make: Callable[[], Env], extent: Extent) -> tuple[Cost, Cost]:
    """Return the best of several runs in one process, and of as many in workers, alternating."""
    num_envs = extent.num_envs
    envs = ProcessVectorEnv(make, num_envs, workers=extent.workers)
    try:
        one = OneProcess(make, num_envs)
        me = os.getpid()
        processes = [me, *(process.pid for process in envs.processes if process.pid)]
        draws = np.random.default_rng(SEED).random((64, *one.action_masks().shape), dtype=np.float32)
        draws[:, :, 0] *= _WAIT_SHARE
        best: list[Cost] = []
        for _ in range(extent.rounds):
            one.reset()
            envs.reset(seed=SEED)
            costs = [drive(one, draws, extent.turns, [me]), drive(envs, draws, extent.turns, processes)]
            best = [least.best(cost) for least, cost in zip(best, costs, strict=True)] if best else costs
        return best[0], best[1]
    finally:
        envs.close()


def report_one(make: Make, repeat: int) -> list[str]:
    """Measure one environment; return the lines of the report."""
    env = make()
    actions = record(env)
    steps = len(actions)
    bare = best(repeat, partial(replay, env, actions, masks=False)) * 1e6
    masked = best(repeat, partial(replay, env, actions, masks=True)) * 1e6
    reset_us = best(repeat, lambda: np.array([_timed(partial(env.reset, seed=SEED))]))[0] * 1e6
    waits = np.array(actions) == 0
    return [
        f"one environment, an episode of {steps} steps, best of {repeat}",
        f"  steps/s                {1e6 / bare.mean():10,.0f}   ({bare.mean():.1f} us a step)",
        f"  steps/s with masks     {1e6 / masked.mean():10,.0f}   ({masked.mean() - bare.mean():.1f} us a mask)",
        f"  a step that starts     {bare[~waits].mean():10.1f} us   ({steps - waits.sum()} of them)",
        f"  a step that waits      {bare[waits].mean():10.1f} us   ({waits.sum()} of them)",
        f"  a reset                {reset_us:10.1f} us",
    ]


def report_many(make: Make, extent: Extent) -> list[str]:
    """Measure many environments; return the lines of the report."""
    one, many = compare(make, extent)
    idle, idle_workers = compare(partial(Idle, make), extent)
    steps = extent.num_envs * extent.turns
    overhead_us = (idle_workers.cpu_s - idle.cpu_s) / extent.turns * 1e6
    return [
        f"{extent.workers} workers of {extent.per_worker} environments, {extent.turns} steps of each with masks, "
        f"best of {extent.rounds} in turn",
        f"  one process, steps/s   {steps / one.wall_s:10,.0f}   ({one.cpu_s / steps * 1e6:.1f} us of CPU a step)",
        f"  workers, steps/s       {steps / many.wall_s:10,.0f}   ({many.cpu_s / steps * 1e6:.1f} us of CPU a step)",
        f"  ratio                  {one.wall_s / many.wall_s:10.2f}",
        f"  ratio by CPU           {one.path_s / many.path_s:10.2f}",
        f"  overhead               {overhead_us:10.1f} us of CPU for a step of all {extent.num_envs} environments",
        f"  load average           {os.getloadavg()[0]:10.2f}",
    ]


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def make_of(given: argparse.Namespace) -> Make:
    """Return a function that makes the requested environment."""
    if given.env == "sched2":
        traces = Sched2(mean_gap_s=given.gap)
        return partial(
            Sched2Env, traces=traces, slowdown=given.slowdown or ["locality"], cluster=given.cluster or "15x8"
        )
    cluster, slowdown = given.cluster or "4x8", given.slowdown or ["pair-table"]
    return partial(ContentionEnv, slowdown=slowdown, cluster=cluster, nodes=given.nodes)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure environments, and print the reports."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.bench", description="Measure environment steps per second."
    )
    parser.add_argument("--repeat", type=int, default=20, help="replays, of which the best counts")
    parser.add_argument("--workers", type=int, default=2, help="processes of the vectorized form")
    parser.add_argument("--per-worker", type=int, default=16, help="environments of each worker")
    parser.add_argument("--turns", type=int, default=200, help="steps of a run of the vectorized form")
    parser.add_argument("--rounds", type=int, default=10, help="runs of the vectorized form, of which the best counts")
    parser.add_argument("--env", default="contention", choices=("contention", "sched2"))
    parser.add_argument(
        "--slowdown", nargs="*", help="as --slowdown of headway-sim (default: pair-table; locality for sched2)"
    )
    parser.add_argument("--cluster", help="as --cluster of headway-sim (default: 4x8; 15x8 for sched2)")
    parser.add_argument(
        "--nodes", default="lists", choices=("lists", "rules"), help="form of the placements of contention"
    )
    parser.add_argument("--gap", type=float, default=172.0, help="mean seconds between two submissions of sched2")
    given = parser.parse_args(arguments)
    make = make_of(given)
    sys.stdout.write("\n".join(report_one(make, given.repeat)) + "\n")
    lines = report_many(make, Extent(given.workers, given.per_worker, given.turns, given.rounds))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
