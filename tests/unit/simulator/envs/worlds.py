"""Small environments and agents for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

import gymnasium
import numpy as np

from simulator.papers.contention_rl.env import ContentionEnv
from simulator.slowdown.api import Resident
from simulator.traces.trace import NS_PER_S, Trace

Agent = Callable[[ContentionEnv], int]
MODELS = ("GraphSage", "MobileNetV3", "DLRM", "Transformer-XL", "FSDP", "MoE")


def trace_of(*jobs: tuple[float, int, float], models: Iterable[str] | None = None, **columns: Any) -> Trace:
    """A trace of (submit in s, GPUs, duration in s)."""
    submit, gpus, duration = zip(*jobs, strict=True)
    return Trace.of(
        "tiny",
        [f"j{row}" for row in range(len(jobs))],
        [round(time * NS_PER_S) for time in submit],
        list(gpus),
        [round(time * NS_PER_S) for time in duration],
        model=list(models) if models is not None else None,
        **columns,
    )


class Crowd:
    """A slowdown model that can be worked out by hand: of n jobs that run, each has 1/n of its speed."""

    only_between_nodes = False
    needs_gpus = False

    def __init__(self) -> None:
        self.running: set[int] = set()

    def enter(self, resident: Resident) -> None:
        self.running.add(resident.job)

    def leave(self, job: int) -> None:
        self.running.discard(job)

    def changed(self) -> Iterable[int]:
        return sorted(self.running)

    def factor(self, job: int) -> float:
        return 1 / len(self.running)

    def fork(self) -> Self:
        twin = type(self)()
        twin.running = set(self.running)
        return twin


def random_agent(seed: int, wait_share: float = 0.2) -> Agent:
    """Any possible action; a part of the choices waits."""
    rng = np.random.default_rng(seed)

    def act(env: ContentionEnv) -> int:
        possible = np.flatnonzero(env.action_masks())
        return 0 if len(possible) == 1 or rng.random() < wait_share else int(rng.choice(possible[1:]))

    return act


def trail(env: gymnasium.Env[Any, Any], agent: Callable[[Any], int]) -> list[bytes]:
    """Return observations and rewards of two episodes, the first of seed 4."""
    steps = []
    seen, _ = env.reset(seed=4)
    for _ in range(2):
        over = False
        while not over:
            seen, reward, terminated, truncated, _ = env.step(np.int64(agent(env)))
            steps.append(seen.tobytes() + np.float64(reward).tobytes())
            over = terminated or truncated
        seen, _ = env.reset()
        steps.append(seen.tobytes())
    return steps


def first_action(env: ContentionEnv) -> int:
    """The first candidate that can be placed, by its first possible placement; with rules that is best fit on the fewest nodes."""
    possible = np.flatnonzero(env.action_masks())
    return int(possible[1]) if len(possible) > 1 else 0


def play(env: ContentionEnv, agent: Agent, **reset: Any) -> tuple[dict[str, float], float]:
    """One episode: its outcome, and the sum of rewards."""
    env.reset(**reset)
    total = 0.0
    while True:
        _, reward, terminated, truncated, info = env.step(np.int64(agent(env)))
        total += reward
        if terminated or truncated:
            return info["outcome"], total
