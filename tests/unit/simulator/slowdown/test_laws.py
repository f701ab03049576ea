"""Laws of every model: order does not matter, changes are reported, forks are independent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cluster.topology import Topology
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.compose import Composite
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import MODELS, build
from tests.unit.simulator.slowdown.worlds import TOPOLOGIES, Make, check_laws

PROFILES = paper_profiles()
SPECS = [
    *MODELS,
    *("max-min:sharing=duty", "max-min:reference=alone", "link-sharing:reference=alone", "pair-table:single=no"),
    *("interference:cores=1", "parameter-server:ratio=0.2", "locality:default=vgg16"),
]
ABOVE_ONE = {"scaling"}


def maker(*specs: str) -> Make:
    def make(topology: Topology) -> SlowdownModel:
        models = build(specs, topology=topology, profiles=PROFILES)
        return models[0] if len(models) == 1 else Composite(models)

    return make


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", TOPOLOGIES)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_every_model_keeps_the_laws(spec: str, kind: str, seed: int) -> None:
    for _ in check_laws(maker(spec), TOPOLOGIES[kind](), seed, float("inf") if spec in ABOVE_ONE else 1.0):
        pass


@pytest.mark.parametrize("sharing", ["phases", "shifts"])
def test_sending_in_turns_keeps_the_laws(sharing: str) -> None:
    for _ in check_laws(maker(f"max-min:sharing={sharing}"), TOPOLOGIES["mixed"](), 5):
        pass


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_composite_keeps_the_laws(seed: int) -> None:
    for _ in check_laws(maker("locality", "max-min", "interference"), TOPOLOGIES["racks"](), seed):
        pass


@pytest.mark.parametrize("spec", SPECS)
def test_every_model_slows_some_job_down(spec: str) -> None:
    seen = {
        factor for seed in range(5) for factor in check_laws(maker(spec), TOPOLOGIES["speeds"](), seed, float("inf"))
    }
    assert min(seen) < 0.99
    assert len(seen) > (2 if spec == "node-speed" else 5)
