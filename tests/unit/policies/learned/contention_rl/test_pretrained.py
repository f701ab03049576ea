"""The weights that come with Headway: they agree with their card, and their decisions are valid and always the same."""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="serving the agent needs torch")

from policies.api import load_policy
from policies.errors import EncoderError, PolicyLoadError, WeightsError
from policies.learned.contention_rl.encoder import NAME
from policies.learned.contention_rl.policy import (
    PAPER,
    SHIPPED,
    SYSTEM,
    USUAL_BRANCH,
    ContentionAgent,
    RlBase,
    RlHybrid,
    shipped,
)
from policies.learned.contention_rl.recipe import PRESETS, Recipe
from policies.learned.contention_rl.system import setup
from policies.learned.training.systems import SetupOverrides
from policies.learned.weights import weights
from policies.learned.weights.card import settings_of
from policies.model import ClusterState, ProfileTable
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL, generate
from simulator.training.backend import simulator_backend
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.policies.states.valid import check

KINDS = (RlBase, RlHybrid)
USUAL = SHIPPED[USUAL_BRANCH]
BRANCHES = sorted(SHIPPED)
NAMES = [*SHIPPED.values(), *(shipped(branch, PAPER) for branch in SHIPPED)]


def files() -> Path:
    return Path(str(weights.pretrained()))


def moments(jobs: int = 300, every: int = 25) -> list[ClusterState]:
    """States of a run with more jobs than there are GPUs."""
    profiles, where = paper_profiles("contention-rl"), parse_cluster("4x8")
    models = build(["pair-table"], topology=where.topology, profiles=profiles)
    trace = generate(ContentionRL(jobs=jobs, seed=7, demands=(2, 4, 8)))
    simulation = Simulation(trace, where, load_policy("random", {}), Settings(), models, profiles)
    states = []
    for turn in range(8 * every):
        if not simulation.advance():
            break
        if turn % every == 0:
            states.append(simulation.state())
        simulation.decide()
    return states


@pytest.mark.parametrize("branch", BRANCHES)
def test_card_and_weights_belong_together(branch: str) -> None:
    arrays, card = weights.load(weights.pretrained(), SHIPPED[branch], system=SYSTEM, encoder=NAME)
    assert card.parameters == sum(array.size for array in arrays.values())
    assert card.results["both_s"] == card.results["validation"]
    assert ContentionAgent.load(branch=branch).encoder.encoding.supports == "4 nodes of at most 8 GPUs"


def test_all_weights_of_the_system_are_small() -> None:
    assert sum((files() / f"{name}.safetensors").stat().st_size for name in NAMES) < 5e6


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_documented_command_has_this_recipe_and_these_data(branch: str) -> None:
    _, card = weights.load(weights.pretrained(), SHIPPED[branch], system=SYSTEM, encoder=NAME)
    recipe = Recipe(branch=branch)
    of_recipe = {each.name: getattr(recipe, each.name) for each in fields(Recipe)}
    reported = {
        name: ", ".join(map(str, value)) if isinstance(value, tuple) else value for name, value in of_recipe.items()
    }
    # The weights are older than some fields; their defaults change nothing.
    newer = reported.keys() - card.recipe.keys()
    assert newer == {"network", "anneal", "validate_every"}
    assert {name: card.recipe[name] for name in reported.keys() - newer} == {
        name: reported[name] for name in reported.keys() - newer
    }
    assert card.seed == 0
    assert card.data_sha256 == simulator_backend(setup(recipe), SetupOverrides()).data_sha256


@pytest.mark.parametrize("branch", BRANCHES)
def test_weights_of_the_papers_recipe_are_those_of_the_documented_command(branch: str) -> None:
    recipe = replace(PRESETS[PAPER], branch=branch)
    arrays, card = weights.load(weights.pretrained(), shipped(branch, PAPER), system=SYSTEM, encoder=NAME)
    assert {name: card.recipe[name] for name in settings_of(recipe)} == settings_of(recipe)
    assert (card.seed, card.data_sha256) == (0, simulator_backend(setup(recipe), SetupOverrides()).data_sha256)
    assert card.parameters == sum(array.size for array in arrays.values())
    encoding = ContentionAgent.load(branch=branch, preset=PAPER).encoder.encoding
    assert (encoding.cells, encoding.shape, encoding.starts) == ("scalar", (4, 16), "any")


@pytest.mark.parametrize("kind", KINDS)
def test_the_papers_agent_is_served_by_its_preset(kind: type[RlBase]) -> None:
    policy = load_policy(kind.spec.name, {"preset": "paper"})
    for state in moments():
        decision = policy.decide(state)
        check(state, decision, policy.spec)
        assert load_policy(kind.spec.name, {"preset": "paper", "branch": "B"}).decide(state) == decision
    with pytest.raises(PolicyLoadError, match="preset is 'papers'; give own or paper"):
        load_policy(kind.spec.name, {"preset": "papers"})


def test_the_usual_branch_depends_on_the_preset() -> None:
    chances = {
        options: next(iter(load_policy("rl-base", dict(options)).decide(moments(every=3)[0]).reasons.values()))
        for options in ((), (("branch", "C"),), (("preset", "paper"),), (("preset", "paper"), ("branch", "B")))
    }
    own, c, paper, b = chances.values()
    assert own == c != paper == b


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_are_valid_and_the_same_in_every_process(kind: type[RlBase]) -> None:
    first, again = load_policy(kind.spec.name, {}), kind()
    states = moments()
    assert len(states) == 8
    for state in states:
        decision = first.decide(state)
        check(state, decision, first.spec)
        assert again.decide(state) == decision


def test_branches_are_not_the_same_agent() -> None:
    state = moments(every=3)[3]
    chances = {
        branch: ContentionAgent.load(branch=branch)
        .choose(ContentionAgent.load().encoder.observe(state), must_act=False)
        .share
        for branch in BRANCHES
    }
    assert len(set(chances.values())) == len(BRANCHES)


def test_unknown_branches_are_refused() -> None:
    with pytest.raises(PolicyLoadError, match="branch is 'F'; give A or B"):
        load_policy("rl-base", {"branch": "F"})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["bytes_per_step", "compute_s", "overlap", "hiding", "neighbour_loss"])
def test_profiles_that_are_not_finite_give_valid_placements(kind: type[RlBase], column: str) -> None:
    state = moments(every=3)[3]
    assert state.profiles is not None
    broken: dict[str, Any] = {column: np.full(len(state.profiles.models), np.nan)}
    profiles: ProfileTable = replace(state.profiles, **broken)
    decision = kind().decide(replace(state, profiles=profiles))
    check(state, decision, kind.spec)
    check(state, kind().decide(replace(state, profiles=None)), kind.spec)


@pytest.mark.parametrize(("nodes", "gpus"), [(2, 8), (5, 8), (4, 16)])
def test_other_clusters_are_refused_with_what_to_do(nodes: int, gpus: int) -> None:
    state = cluster([Node(gpus=gpus)] * nodes, [Job(gpus=2)])
    with pytest.raises(EncoderError, match=r"trained for 4 nodes of at most 8 GPUs.*train one for this cluster"):
        RlHybrid().decide(state)


def test_smaller_nodes_and_nodes_that_are_down_are_supported() -> None:
    state = cluster([Node(gpus=8), Node(gpus=4), Node(gpus=8, available=False), Node(gpus=2)], [Job(gpus=2)] * 9)
    decision = RlHybrid().decide(state)
    check(state, decision, RlHybrid.spec)
    assert len(decision.allocation) == 7


@pytest.mark.parametrize("broken", ["bit", "short", "other", "none"])
def test_broken_files_are_refused(tmp_path: Path, broken: str) -> None:
    for end in ("safetensors", "json"):
        shutil.copy(files() / f"{USUAL}.{end}", tmp_path / f"{SYSTEM}.{end}")
    path = tmp_path / f"{SYSTEM}.safetensors"
    content = bytearray(path.read_bytes())
    if broken == "bit":
        content[-7] ^= 16
    elif broken == "short":
        del content[-40:]
    elif broken == "other":
        card = tmp_path / f"{SYSTEM}.json"
        card.write_text(card.read_text().replace('"hidden": 64', '"hidden": 32'))
    path.write_bytes(content)
    if broken == "none":
        path.unlink()
    with pytest.raises(WeightsError, match=SYSTEM):
        RlBase(str(tmp_path))
