"""Untrained agents, and small environments for the tests of training."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from policies.learned.sched2.encoder import Encoding
from policies.learned.sched2.networks import FeatureNetwork
from policies.learned.sched2.policy import QAgent
from policies.learned.sched2.state.feature_columns import FeatureColumns
from policies.learned.sched2.state.features import Features
from policies.learned.sched2.state.state_columns import StateColumns
from policies.learned.sched2.training.recipe import Recipe
from policies.learned.sched2.training.rule_recipe import RuleRecipe
from policies.learned.sched2.training.training_setup import HOUR_S
from simulator.envs.vector import ProcessVectorEnv
from simulator.papers.sched2.env import Sched2Env
from simulator.traces.generators.sched2 import Sched2 as Workload

SMALL = Encoding(num_nodes=4, gpus_per_node=4, candidates=4)
FEW = Workload(jobs=30, mean_gap_s=600.0, cluster_gpus=16, one_gpu_share=0.9)


def candidates_of(columns: StateColumns, state: np.ndarray[tuple[int], np.dtype[np.float32]]) -> tuple[Tensor, Tensor]:
    """Features of the candidates of one state, and the server that packing takes first of each."""
    rows = torch.from_numpy(Features(columns).rows(state[None]))
    _, own, first, _ = FeatureColumns(columns).split(rows)
    return own[0], first[0]


def network_of(encoding: Encoding, seed: int = 0, spread: float = 1.0) -> FeatureNetwork:
    """Return a network with random weights; `spread` scales its outputs."""
    torch.manual_seed(seed)
    network = FeatureNetwork(encoding.columns, hidden=8, server=4)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name in {"rule.weight", "start.weight", "void.2.weight"}:
                torch.nn.init.normal_(weight, std=spread)
    return network


def agent_of(encoding: Encoding, seed: int = 0) -> QAgent:
    """With random weights."""
    return QAgent(encoding, network_of(encoding, seed))


def small_recipe(**options: Any) -> Recipe:
    """Return a recipe whose training takes seconds."""
    given: dict[str, Any] = {
        "candidates": 4, "network": "features", "hidden": 8, "server": 4, "envs": 4, "rounds": 2, "batch": 16, "validate_every": 1,
        "replay_capacity": 1000, "pretrain_batches": 20, "n_steps": 4, "margin_weight": 1.0,
    }  # fmt: skip
    return Recipe(**{**given, **options})


def small_search(**options: Any) -> RuleRecipe:
    """Return a recipe whose search takes seconds."""
    given: dict[str, Any] = {"candidates": 4, "envs": 4, "rounds": 2, "rules": 4, "traces": 2}
    return RuleRecipe(**{**given, **options})


def rule_actions(
    rules: npt.NDArray[np.float64], own: npt.NDArray[np.float32], masks: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return the action of rule e where candidates have these features (E, J, OF_JOB): void has the value 0."""
    worth = np.concatenate([np.zeros((len(rules), 1)), np.einsum("ejf,ef->ej", own, rules)], axis=1)
    actions: npt.NDArray[np.int64] = np.where(masks, worth, -np.inf).argmax(1)
    return actions


def environments(recipe: Recipe | RuleRecipe, **options: Any) -> ProcessVectorEnv:
    """Environments of one process, in the form for training."""
    reported = {
        "traces": FEW,
        "cluster": "4x4",
        "candidates": recipe.candidates,
        "window": recipe.window,
        "reward": recipe.reward,
        "round_s": HOUR_S,
    }
    make = partial(Sched2Env, **{**reported, **options})
    return ProcessVectorEnv(make, recipe.envs, workers=0, autoreset=AutoresetMode.SAME_STEP)
