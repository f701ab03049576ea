"""Steps a second: `python -m simulator.envs.bench [--repeat N] [--workers W] [--per-worker N] [--slowdown NAME ...]`.

One environment is timed on an episode of random possible actions, drawn before and then replayed; each figure is the best of
so many replays, since what else runs on the machine only adds. `with masks` adds `action_masks` at every step, as training with
masks does. The vectorized form draws its actions from the masks as it goes, resets included: the figure is of both together.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from simulator.envs.contention import ContentionEnv
from simulator.envs.vector import ProcessVectorEnv

SEED = 1
_WAIT_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one episode's steps."""

    steps: int
    waits: int
    """Steps that let time pass."""
    total_s: float
    starting_s: float
    waiting_s: float


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


def replay(env: ContentionEnv, actions: Sequence[np.int64], *, masks: bool) -> float:
    """Seconds of these steps, the reset before them not counted."""
    env.reset(seed=SEED)
    step, action_masks = env.step, env.action_masks
    begin = time.perf_counter()
    for action in actions:
        if masks:
            action_masks()
        step(action)
    return time.perf_counter() - begin


def replay_by_kind(env: ContentionEnv, actions: Sequence[np.int64]) -> Spent:
    """The same with the clock read at every step."""
    env.reset(seed=SEED)
    spent = [0.0, 0.0]
    for action in actions:
        waits = int(action == 0)
        begin = time.perf_counter()
        env.step(action)
        spent[waits] += time.perf_counter() - begin
    return Spent(len(actions), int(sum(action == 0 for action in actions)), sum(spent), spent[0], spent[1])


def vectorized(options: dict[str, Any], workers: int, per_worker: int, steps: int) -> float:
    """Steps a second of all environments together."""
    envs = ProcessVectorEnv(partial(ContentionEnv, **options), workers * per_worker, workers=workers)
    try:
        rng = np.random.default_rng(SEED)
        envs.reset(seed=SEED)
        draws = rng.random((64, envs.num_envs, int(envs.single_action_space.n)), dtype=np.float32)  # type: ignore[attr-defined]
        draws[:, :, 0] *= _WAIT_SHARE
        begin = time.perf_counter()
        for turn in range(steps):
            actions = (draws[turn % len(draws)] * envs.action_masks()).argmax(axis=1)
            envs.step(actions)
        return steps * envs.num_envs / (time.perf_counter() - begin)
    finally:
        envs.close()


def _least(repeat: int, measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(repeat))


def report(options: dict[str, Any], repeat: int, workers: int, per_worker: int) -> list[str]:
    """Lines to print."""
    env = ContentionEnv(**options)
    actions = record(env)
    steps = len(actions)
    bare_s = _least(repeat, partial(replay, env, actions, masks=False))
    masked_s = _least(repeat, partial(replay, env, actions, masks=True))
    kinds = min((replay_by_kind(env, actions) for _ in range(repeat)), key=lambda spent: spent.total_s)
    reset_s = _least(repeat, lambda: _timed(partial(env.reset, seed=SEED)))
    together = max(vectorized(options, workers, per_worker, 2_000) for _ in range(max(1, repeat // 5)))
    starts = kinds.steps - kinds.waits
    return [
        f"one environment, an episode of {steps} steps, best of {repeat}",
        f"  steps/s                {steps / bare_s:10,.0f}   ({bare_s / steps * 1e6:.1f} us a step)",
        f"  steps/s with masks     {steps / masked_s:10,.0f}   ({(masked_s - bare_s) / steps * 1e6:.1f} us a mask)",
        f"  a step that starts     {kinds.starting_s / starts * 1e6:10.1f} us   ({starts} of them)",
        f"  a step that waits      {kinds.waiting_s / kinds.waits * 1e6:10.1f} us   ({kinds.waits} of them)",
        f"  a reset                {reset_s * 1e6:10.1f} us",
        f"{workers} processes of {per_worker} environments, masks and resets included",
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
    parser.add_argument("--slowdown", nargs="*", default=[], help="as headway-sim has it")
    parser.add_argument("--cluster", default="4x8", help="as headway-sim has it")
    parser.add_argument("--nodes", default="lists", choices=("lists", "rules"))
    given = parser.parse_args(arguments)
    options = {"slowdown": given.slowdown, "cluster": given.cluster, "nodes": given.nodes}
    sys.stdout.write("\n".join(report(options, given.repeat, given.workers, given.per_worker)) + "\n")


if __name__ == "__main__":
    main()
