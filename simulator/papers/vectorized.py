"""Entry points of `gymnasium.make_vec(id, num_envs, vectorization_mode="vector_entry_point")`: environments in worker processes.

Besides an environment's own options these take `workers` and `autoreset`, as `simulator.envs.vector` has them. Those of RL-TAPS are
arrays in one process instead.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from simulator.envs.vector import ProcessVectorEnv

if TYPE_CHECKING:
    from simulator.papers.rl_taps.vector import RlTapsVectorEnv


def contention(num_envs: int = 1, **options: Any) -> ProcessVectorEnv:
    """Make vectorized `headway/Contention-v0`."""
    from simulator.papers.contention_rl.env import ContentionEnv

    return _many(ContentionEnv, num_envs, options)


def elastic(num_envs: int = 1, **options: Any) -> ProcessVectorEnv:
    """Make vectorized `headway/ElasticAllocation-v0`."""
    from simulator.papers.dl2.env import ElasticAllocationEnv

    return _many(ElasticAllocationEnv, num_envs, options)


def marl(num_envs: int = 1, **options: Any) -> ProcessVectorEnv:
    """Make vectorized `headway/Marl-v0`."""
    from simulator.papers.marl.env import MarlEnv

    return _many(MarlEnv, num_envs, options)


def rl_taps(num_envs: int = 1, **options: Any) -> RlTapsVectorEnv:
    """Make vectorized `headway/RlTaps-v0`."""
    from simulator.papers.rl_taps.vector import RlTapsVectorEnv

    return RlTapsVectorEnv(num_envs, **options)


def sched2(num_envs: int = 1, **options: Any) -> ProcessVectorEnv:
    """Make vectorized `headway/Sched2-v0`."""
    from simulator.papers.sched2.env import Sched2Env

    return _many(Sched2Env, num_envs, options)


def _many(kind: Any, num_envs: int, options: dict[str, Any]) -> ProcessVectorEnv:
    ours = {name: options.pop(name) for name in ("workers", "autoreset") if name in options}
    return ProcessVectorEnv(partial(kind, **options), num_envs, **ours)
