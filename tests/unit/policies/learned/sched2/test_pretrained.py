"""The weights that come with Headway reach their documented results."""

from __future__ import annotations

import subprocess
import sys

import pytest

from policies.api import load_policy
from policies.errors import PolicyLoadError
from policies.learned.sched2.encoder import NAME, encoding_of
from policies.learned.sched2.policy import SHIPPED, SYSTEM
from policies.learned.sched2.rule import SYSTEM as RULE
from policies.learned.sched2.state.kinds import FEATURES, PAPER
from policies.learned.sched2.training.recipe import Recipe
from policies.learned.weights import weights
from policies.learned.weights.card import settings_of
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.papers.sched2.baselines import Baseline
from simulator.results import metrics
from simulator.results.result import Result
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.sched2 import Sched2, generate

CLUSTER = parse_cluster("15x8")
PROFILES = paper_profiles("sched2")


def test_the_shipped_rules_beat_both_controls_when_all_choose_from_the_first_ten_jobs() -> None:
    trace = generate(Sched2(seed=500, jobs=400, mean_gap_s=80.0))
    models = build(["locality"], topology=CLUSTER.topology, profiles=PROFILES)
    learned = Simulation(trace, CLUSTER, load_policy("sched2-rule"), Settings(), models, PROFILES)
    learned.run()
    controls = [Baseline(name, trace, CLUSTER, models, 10).run() for name in ("spf-local", "delay")]
    jcts = [metrics.average_jct_s(Result.of(run, "", 0.0)) for run in (learned, *controls)]
    assert None not in jcts
    assert not learned.unfinished
    assert jcts[0] < 0.9 * min(jcts[1:])  # type: ignore[operator,type-var]


@pytest.mark.parametrize("system", [SYSTEM, RULE])
def test_the_card_names_the_cluster_of_the_weights(system: str) -> None:
    _, card = weights.load(weights.pretrained(), system, system=system, encoder=NAME)
    encoding = encoding_of(card.recipe)
    assert card.shapes == (encoding.supports,) == ("15 nodes, the widest of 8 GPUs",)
    figure = card.results["avg_jct_s"] if system == RULE else -card.results["effectiveness"]
    assert card.results["validation"] == figure


def test_the_papers_agent_was_trained_by_the_papers_recipe() -> None:
    _, card = weights.load(weights.pretrained(), SYSTEM, system=SYSTEM, encoder=NAME)
    # a field that came later, with a default that changes nothing
    assert {
        "min_gain": 0.0,
        **{name: card.recipe[name] for name in settings_of(Recipe()) if name != "min_gain"},
    } == settings_of(Recipe())


def test_the_network_of_features_was_trained_by_the_same_recipe() -> None:
    _, card = weights.load(weights.pretrained(), SHIPPED[FEATURES], system=SYSTEM, encoder=NAME)
    known = settings_of(Recipe(network=FEATURES))
    assert {name: card.recipe[name] for name in known} == known
    assert encoding_of(card.recipe).supports == "15 nodes, the widest of 8 GPUs"
    assert card.results["validation"] == -card.results["effectiveness"]


def test_the_network_of_features_is_another_agent_than_the_papers() -> None:
    trace = generate(Sched2(seed=500, jobs=100, mean_gap_s=80.0))
    models = build(["locality"], topology=CLUSTER.topology, profiles=PROFILES)
    runs = [
        Simulation(trace, CLUSTER, load_policy("sched2", options), Settings(), models, PROFILES)
        for options in ({}, {"network": PAPER}, {"network": FEATURES})
    ]
    for each in runs:
        each.run()
    default, papers, features = (Result.of(each, "", 0.0).finish_ns.tolist() for each in runs)
    assert default == papers != features


def test_a_network_that_does_not_come_with_headway_is_refused() -> None:
    with pytest.raises(PolicyLoadError, match="network is 'wide'; give paper or features"):
        load_policy("sched2", {"network": "wide"})


def test_the_rule_needs_no_torch() -> None:
    code = (
        "import sys; from policies.api import load_policy; load_policy('sched2-rule'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=100).returncode == 0
