"""Untrained agents, and the small worlds of the tests of training."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from gymnasium.vector import AutoresetMode

from policies.learned.sched2.encoder import Encoding
from policies.learned.sched2.network import QNetwork
from policies.learned.sched2.policy import Sched2Agent
from policies.learned.sched2.training.recipe import Recipe
from simulator.envs.vector import ProcessVectorEnv
from simulator.papers.sched2.env import Sched2Env
from simulator.traces.generators.sched2 import Sched2 as Workload

SMALL = Encoding(num_nodes=4, gpus_per_node=4, candidates=4)
FEW = Workload(jobs=30, mean_gap_s=600.0, cluster_gpus=16, one_gpu_share=0.9)


def network_of(encoding: Encoding, seed: int = 0, spread: float = 1.0) -> QNetwork:
    """Random weights; `spread` is how different its answers are."""
    torch.manual_seed(seed)
    network = QNetwork(encoding.layout, hidden=8, server=4)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name in {"rule.weight", "start.weight", "void.2.weight"}:
                torch.nn.init.normal_(weight, std=spread)
    return network


def agent_of(encoding: Encoding, seed: int = 0) -> Sched2Agent:
    """With random weights."""
    return Sched2Agent(encoding, network_of(encoding, seed))


def small_recipe(**options: Any) -> Recipe:
    """A recipe whose training takes seconds."""
    given: dict[str, Any] = {
        "candidates": 4, "hidden": 8, "server": 4, "envs": 4, "searches": 2, "rules": 4, "traces": 2, "rounds": 2, "batch": 16,
        "replay_capacity": 1000, "pretrain_batches": 20, "n_steps": 4,
    }  # fmt: skip
    return Recipe(**{**given, **options})


def environments(recipe: Recipe, **options: Any) -> ProcessVectorEnv:
    """Environments of one process, in the form for training."""
    told = {
        "traces": FEW,
        "cluster": "4x4",
        "candidates": recipe.candidates,
        "window": recipe.window,
        "reward": recipe.reward,
        "horizon_h": recipe.horizon_h,
        "tell_time": True,
    }
    make = partial(Sched2Env, **{**told, **options})
    return ProcessVectorEnv(make, recipe.envs, workers=0, autoreset=AutoresetMode.SAME_STEP)
