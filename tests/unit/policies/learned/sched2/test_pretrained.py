"""The weights that come with Headway are worth what they are there for."""

from __future__ import annotations

from policies.api import load_policy
from policies.learned.sched2.encoder import NAME
from policies.learned.sched2.policy import SYSTEM, encoding_of
from policies.learned.weights import weights
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


def test_they_beat_both_controls_where_all_choose_from_the_first_ten() -> None:
    trace = generate(Sched2(seed=500, jobs=400, mean_gap_s=80.0))
    models = build(["locality"], topology=CLUSTER.topology, profiles=PROFILES)
    learned = Simulation(trace, CLUSTER, load_policy("sched2"), Settings(), models, PROFILES)
    learned.run()
    controls = [Baseline(name, trace, CLUSTER, models, 10).run() for name in ("spf-local", "delay")]
    jcts = [metrics.average_jct_s(Result.of(run, "", 0.0)) for run in (learned, *controls)]
    assert None not in jcts
    assert not learned.unfinished
    assert jcts[0] < 0.9 * min(jcts[1:])  # type: ignore[operator,type-var]


def test_their_card_says_for_which_cluster_they_are() -> None:
    _, card = weights.load(weights.pretrained(), SYSTEM, system=SYSTEM, encoder=NAME)
    encoding = encoding_of(card.recipe)
    assert card.shapes == (encoding.supports,) == ("15 nodes, the widest of 8 GPUs",)
    assert card.results["validation"] == card.results["avg_jct_s"]
