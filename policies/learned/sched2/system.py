"""SCHED2 as `headway-policy train sched2` trains it."""

from __future__ import annotations

from policies.learned.sched2.encoder import NAME, Encoding
from policies.learned.sched2.policy import SYSTEM as NAMED
from policies.learned.sched2.policy import Agent, Sched2, settings
from policies.learned.sched2.recipe import Recipe, Training
from policies.learned.training.run_folder import TrainingRun
from policies.learned.training.systems import FIGURE, Facts, Ground, Jobs, Scene, System


def scene(recipe: Recipe) -> Scene:
    """15 servers of 8 GPUs, and the paper's workload at the recipe's gaps."""
    return Scene(
        workloads=tuple(Jobs("sched2", {"mean_gap_s": gap_s}) for gap_s in recipe.gaps_s),
        cluster="15x8",
        papers=("sched2",),
        window=1000,
        validation_seeds=range(500, 530),
    )


def encoding_of(recipe: Recipe, ground: Ground) -> Encoding:
    """What the agent sees of that ground's cluster."""
    return Encoding(
        num_nodes=len(ground.gpus),
        gpus_per_node=max(ground.gpus),
        candidates=recipe.candidates,
        window=recipe.window,
    )


def facts(recipe: Recipe, ground: Ground) -> Facts:
    """What the card is told."""
    encoding = encoding_of(recipe, ground)
    return Facts(encoder=NAME, shapes=(encoding.supports,), settings=settings(encoding, recipe))


def train(run: TrainingRun, ground: Ground, recipe: Recipe) -> None:
    """Search, then Q-learning; after the search and every round of the latter, the network decides about the validation traces.

    What is best is what the search found, unless Q-learning is better by more than the recipe's doubt.
    """
    encoding = encoding_of(recipe, ground)
    envs = ground.envs(
        "headway/Sched2-v0",
        recipe.envs,
        candidates=recipe.candidates,
        window=recipe.window,
        reward=recipe.reward,
        horizon_h=recipe.horizon_h,
        tell_time=True,
    )
    training = Training(envs, encoding.layout, recipe, run.card.seed)
    policy = Sched2.of(Agent(encoding, training.network))
    run.keep(training=training)
    for number in run.rounds(recipe.searches, "search"):
        run.log(**training.run_search())
        if number == recipe.searches - 1:
            _evaluate(run, ground, policy, training)
    for _ in run.rounds(recipe.rounds):
        run.log(**training.run_round())
        _evaluate(run, ground, policy, training)


def _evaluate(run: TrainingRun, ground: Ground, policy: Sched2, training: Training) -> None:
    figures = ground.validate(policy)
    effectiveness = training.recipe.reward != "completions"
    figure = -figures["effectiveness"] if effectiveness else figures[FIGURE]
    if training.round and training.searched:
        figure += training.recipe.doubt * abs(figure)
    run.evaluate(figure, training.network.state_dict(), **figures)


SYSTEM = System(
    name=NAMED,
    says="which of ten waiting jobs starts next, so that clusters do not fragment; SCHED2 (Luan et al., GLOBECOM 2019)",
    recipe=Recipe,
    scene=scene,
    facts=facts,
    train=train,
    policies=("sched2",),
)
