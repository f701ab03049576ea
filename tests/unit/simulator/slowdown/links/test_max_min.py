"""Max-min fair rates, and the flows that an event makes the model compute again."""

from __future__ import annotations

import random

import pytest

from simulator.cluster.topology import flat
from simulator.slowdown.api import Resident
from simulator.slowdown.links.max_min import MaxMin
from simulator.slowdown.links.progressive_filling import max_min
from simulator.slowdown.profiles.papers import paper_profiles

PROFILES = paper_profiles()


@pytest.mark.parametrize("seed", range(30))
def test_every_flow_is_bound_by_its_limit_or_by_a_full_link_on_which_none_has_more(seed: int) -> None:
    rng = random.Random(seed)
    capacity = {link: rng.choice((1.0, 2.0, rng.uniform(0.5, 5))) for link in range(6)}
    uses = {
        flow: {link: rng.choice((1.0, 0.5, 2.0)) for link in rng.sample(range(6), rng.randint(0, 3))}
        for flow in range(rng.randint(1, 9))
    }
    limits = {flow: rng.choice((1.0, 3.0, rng.uniform(0.1, 4))) for flow in uses}
    rates = max_min(uses, capacity, limits)
    load = {link: sum(links.get(link, 0) * rates[flow] for flow, links in uses.items()) for link in capacity}
    assert all(load[link] <= capacity[link] + 1e-9 for link in capacity)
    for flow, links in uses.items():
        assert rates[flow] <= limits[flow] + 1e-12
        occupied = rates[flow] >= limits[flow] - 1e-9 or any(
            load[link] >= capacity[link] - 1e-9
            and all(rates[flow] >= rates[other] - 1e-9 for other in uses if link in uses[other])
            for link in links
        )
        assert occupied


def test_only_the_changed_component_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MaxMin(flat([8] * 40, [2] * 40), PROFILES)
    settled: list[list[int]] = []
    real = MaxMin._settle
    monkeypatch.setattr(
        MaxMin, "_settle", lambda self, component: (settled.append(component), real(self, component))[1]
    )
    for job in range(12):
        model.enter(Resident(job, "vgg16", -1, 12, (3 * job, 3 * job + 1), (8, 4)))
    list(model.changed())
    settled.clear()
    model.enter(Resident(50, "vgg16", -1, 8, (1, 4), (4, 4)))
    list(model.changed())
    assert settled == [[0, 1, 50]]
    settled.clear()
    model.leave(7)
    assert list(model.changed()) == []
    assert settled == []
