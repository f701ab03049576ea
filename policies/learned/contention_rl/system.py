"""Contention RL as a system of `headway-policy train`."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
from torch import nn

from policies.learned.contention_rl.encoder import NAME, Encoding, usual_of
from policies.learned.contention_rl.placement_actions import ever_placed
from policies.learned.contention_rl.policy import SHIPPED, USUAL_BRANCH, ContentionAgent, RlBase, RlHybrid, settings
from policies.learned.contention_rl.policy import SYSTEM as NAMED
from policies.learned.contention_rl.recipe import PRESETS, PpoTrainer, Recipe
from policies.learned.contention_rl.recipe import train as train_with
from policies.learned.training.agents import AgentInEnvironment, NetworkAgent
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import (
    FIGURE,
    CardDetails,
    Gym,
    SimulationBackend,
    TrainableSystem,
    TrainingSetup,
    WorkloadSpec,
)
from policies.learned.weights import weights

ENVIRONMENT = "headway/Contention-v0"


def setup(recipe: Recipe) -> TrainingSetup:
    """Return the paper's cluster and mixes, with slowdown by the pairs of its text and figure 1."""
    how: dict[str, object] = {"demands": recipe.demands, "arrivals": recipe.arrivals}
    if recipe.arrivals != "batch":
        how["load"] = recipe.load
    return TrainingSetup(
        workloads=tuple(WorkloadSpec("contention-rl", {"mix": mix, **how}) for mix in recipe.mixes),
        cluster="4x8",
        slowdown=("pair-table",),
        papers=("contention-rl",),
        places=partial(ever_placed, recipe.split),
        validation_seeds=(500,),
    )


def encoding_of(recipe: Recipe, backend: SimulationBackend) -> Encoding:
    """Return the encoding for that backend's cluster. Raises EncoderError for one with too many lists of nodes."""
    return Encoding(
        num_nodes=len(backend.gpus),
        gpus_per_node=max(backend.gpus),
        candidates=recipe.candidates,
        nodes=recipe.nodes,
        split=recipe.split,
        starts=recipe.starts,
        cells=recipe.cells,
        usual=usual_of(backend.example()),
    )


def card_details(recipe: Recipe, backend: SimulationBackend) -> CardDetails:
    """Return the card's entries."""
    encoding = encoding_of(recipe, backend)
    return CardDetails(encoder=NAME, shapes=(encoding.supports,), settings=settings(encoding, recipe))


def environments(recipe: Recipe, backend: SimulationBackend) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Return environments with the observations and actions of the encoding."""
    return backend.envs(
        ENVIRONMENT,
        recipe.envs,
        branch=recipe.branch,
        reward=recipe.reward,
        starts=recipe.starts,
        candidates=recipe.candidates,
        nodes=recipe.nodes,
        split=recipe.split,
        cells=recipe.cells,
        decide=recipe.decide,
        skip_forced=True,
    )


def agent(folder: str) -> AgentInEnvironment:
    """Return the trained agent in the environment of its training. Raises WeightsError."""
    place, name = weights.located(folder, NAMED, SHIPPED[USUAL_BRANCH])
    _, card = weights.load(place, name, system=NAMED, encoder=NAME)
    needs = ("starts", "candidates", "nodes", "split")
    options = {each: card.recipe[each] for each in (*needs, "branch", "reward", "decide") if each in card.recipe}
    loaded = ContentionAgent.load(folder)
    return AgentInEnvironment(
        NetworkAgent(lambda seen, _masks: loaded.logits(seen), loaded.encoder.encoding.shape),
        ENVIRONMENT,
        {**options, "cells": loaded.encoder.encoding.cells, "skip_forced": True},
        needs=(*needs, "cells"),
    )


def train(run: TrainingRun, backend: SimulationBackend, recipe: Recipe) -> None:
    """Carry out the whole training. Both policies run on the validation traces. The validation figure is the geometric mean of
    RL-Hybrid's JCT with queueing and of RL-base's running time, which is the paper's JCT."""
    encoding = encoding_of(recipe, backend)
    training = PpoTrainer(environments(recipe, backend), encoding, recipe, run.card.seed)
    agent = ContentionAgent(encoding, training.network)

    def validate(_network: nn.Module) -> dict[str, float]:
        hybrid, base = dict(backend.validate(RlHybrid(agent))), backend.validate(RlBase(agent))
        both = (hybrid[FIGURE] * base["avg_service_s"]) ** 0.5
        return {"both_s": both, **hybrid, **{f"base_{name}": figure for name, figure in base.items()}}

    train_with(run, training, validate)


SYSTEM = TrainableSystem(
    name=NAMED,
    summary="where jobs start, and when none does, so that few slow each other down; RL-base and RL-Hybrid (Ryu and Eo)",
    recipe=Recipe,
    setup=setup,
    card=card_details,
    train=train,
    policies=("rl-base", "rl-hybrid"),
    agent=agent,
    rounds="stages",
    presets=PRESETS,
    gym=Gym(
        envs=environments,
        policy=lambda recipe, backend, network: RlHybrid(ContentionAgent(encoding_of(recipe, backend), network)),
    ),
)
