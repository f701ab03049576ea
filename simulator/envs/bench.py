"""Steps a second: `python -m simulator.envs.bench [--repeat N] [--workers W] [--per-worker N] [--slowdown NAME ...]`.

One environment is timed on an episode of random possible actions, drawn before and then replayed. Every step counts with its best
time of so many replays, the clock's own included, since what else runs on the machine only adds. `with masks` adds `action_masks`
at every step, as training with masks does. The vectorized form draws its actions from the masks as it goes, resets included.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from policies.model import FloatColumn
from simulator.envs.contention import ContentionEnv
from simulator.envs.vector import ProcessVectorEnv

SEED = 1
_WAIT_SHARE = 0.2


def record(env: ContentionEnv) -> list[np.int64]:
    """An episode of random possible actions; a fifth of the choices waits."""
    rng = np.random.default_rng(SEED)
    env.reset(seed=SEED)
    actions: list[np.int64] = []
    over = False
    while not over:
        possible = np.flatnonzero(env.action_masks())
        waits = len(possible) == 1 or rng.random() < _WAIT_SHARE
        actions.append(np.int64(0) if waits else rng.choice(possible[1:]))
        _, _, terminated, truncated, _ = env.step(actions[-1])
        over = terminated or truncated
    return actions


def replay(env: ContentionEnv, actions: Sequence[np.int64], *, masks: bool) -> FloatColumn:
    """Seconds of each of these steps, the reset before them not counted."""
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
    """Of each entry the least of so many measurements."""
    least = measure()
    for _ in range(repeat - 1):
        least = np.minimum(least, measure())
    return least


def vectorized(options: dict[str, Any], workers: int, per_worker: int, seconds: float) -> float:
    """Steps a second of all environments together."""
    envs = ProcessVectorEnv(partial(ContentionEnv, **options), workers * per_worker, workers=workers)
    try:
        rng = np.random.default_rng(SEED)
        envs.reset(seed=SEED)
        draws = rng.random((64, envs.num_envs, int(envs.single_action_space.n)), dtype=np.float32)  # type: ignore[attr-defined]
        draws[:, :, 0] *= _WAIT_SHARE
        begin, turns = time.perf_counter(), 0
        while (passed := time.perf_counter() - begin) < seconds:
            envs.step((draws[turns % len(draws)] * envs.action_masks()).argmax(axis=1))
            turns += 1
        return turns * envs.num_envs / passed
    finally:
        envs.close()


def report(options: dict[str, Any], repeat: int, workers: int, per_worker: int) -> list[str]:
    """Lines to print."""
    env = ContentionEnv(**options)
    actions = record(env)
    steps = len(actions)
    bare = best(repeat, partial(replay, env, actions, masks=False)) * 1e6
    masked = best(repeat, partial(replay, env, actions, masks=True)) * 1e6
    reset_us = best(repeat, lambda: np.array([_timed(partial(env.reset, seed=SEED))]))[0] * 1e6
    waits = np.array(actions) == 0
    together = max(vectorized(options, workers, per_worker, 2.0) for _ in range(3))
    return [
        f"one environment, an episode of {steps} steps, best of {repeat}",
        f"  steps/s                {1e6 / bare.mean():10,.0f}   ({bare.mean():.1f} us a step)",
        f"  steps/s with masks     {1e6 / masked.mean():10,.0f}   ({masked.mean() - bare.mean():.1f} us a mask)",
        f"  a step that starts     {bare[~waits].mean():10.1f} us   ({steps - waits.sum()} of them)",
        f"  a step that waits      {bare[waits].mean():10.1f} us   ({waits.sum()} of them)",
        f"  a reset                {reset_us:10.1f} us",
        f"{workers} processes of {per_worker} environments, masks and resets included, best of 3",
        f"  steps/s                {together:10,.0f}",
    ]


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m simulator.envs.bench", description="Steps a second.")
    parser.add_argument("--repeat", type=int, default=20, help="replays, of which the best counts")
    parser.add_argument("--workers", type=int, default=2, help="processes of the vectorized form")
    parser.add_argument("--per-worker", type=int, default=16, help="environments of each")
    parser.add_argument("--slowdown", nargs="*", default=["pair-table"], help="as headway-sim has it")
    parser.add_argument("--cluster", default="4x8", help="as headway-sim has it")
    parser.add_argument("--nodes", default="lists", choices=("lists", "rules"))
    given = parser.parse_args(arguments)
    options = {"slowdown": given.slowdown, "cluster": given.cluster, "nodes": given.nodes}
    sys.stdout.write("\n".join(report(options, given.repeat, given.workers, given.per_worker)) + "\n")


if __name__ == "__main__":
    main()
