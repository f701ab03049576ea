"""Models that update their state at every event, against their definitions computed anew."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cluster.topology import Topology, TreeRoutes, rl_taps
from simulator.slowdown.api import Resident
from simulator.slowdown.links.link_sharing import LinkSharing
from simulator.slowdown.neighbours.pair_table import PairTable, Ratios
from simulator.slowdown.profiles.model_profiles import ModelProfile, key_of
from simulator.slowdown.profiles.papers import paper_profiles
from tests.unit.simulator.slowdown.worlds import TOPOLOGIES, World

PROFILES = paper_profiles()
KINDS = {**TOPOLOGIES, "rl-taps": rl_taps}
Groups = dict[tuple[int, int], list[int]]
"""GPU groups in which a job has GPUs, for each (job, node)."""


def groups_of(topology: Topology, residents: Sequence[Resident]) -> Groups:
    """Best fit by row; one that no group has room for takes from the freest."""
    found: Groups = {}
    for node in range(topology.num_nodes):
        free = list(topology.group_sizes(node))
        for resident in sorted(residents, key=lambda each: each.job):
            count = dict(zip(resident.nodes, resident.counts, strict=True)).get(node, 0)
            used: set[int] = set()
            while count:
                enough = [(room, group) for group, room in enumerate(free) if room >= count]
                group = min(enough)[1] if enough else max((room, -group) for group, room in enumerate(free))[1] * -1
                taken = min(count, free[group])
                free[group] -= taken
                count -= taken
                used.add(group)
            found[resident.job, node] = sorted(used)
    return found


def links_of(topology: Topology, resident: Resident, groups: Groups) -> set[int]:
    """The shared links of a job: those of its ring, of cards only its groups' own, and between its sockets."""
    if sum(resident.counts) == 1:
        return set()
    links = set(topology.ring(resident.nodes))
    for node in resident.nodes:
        used = groups[resident.job, node]
        if len(used) > 1:
            links.add(topology.between_sockets(node))
        if len(resident.nodes) > 1 and isinstance(topology.routes, TreeRoutes):
            links -= set(topology.routes.nics(node)) - {topology.nic(node, group) for group in used}
    return links


def reduce_s(topology: Topology, nodes: Sequence[int], profile: ModelProfile, gpus: int, racks: int) -> float:
    """Equation 12 without other jobs, and what the bytes take longer than over NICs of 12.5 GB/s and other links of 6.25."""
    measured = PROFILES.ring.seconds(gpus, profile.bytes, racks)
    if len(nodes) < 2:
        return measured
    cards = {link for node in range(topology.num_nodes) for link in topology.routes.nics(node)}
    longer = [
        times / topology.capacity[link] - 1 / (12.5 if link in cards else 6.25)
        for link, times in topology.ring(nodes).items()
    ]
    sent_gb = 2 * (len(nodes) - 1) / len(nodes) * profile.bytes / 1e9
    return measured + sent_gb * max(0.0, *longer)


def shared(topology: Topology, residents: Sequence[Resident], reference: str) -> dict[int, float]:
    """Equations 12 to 15."""
    groups = groups_of(topology, residents)
    links = {each.job: links_of(topology, each, groups) for each in residents}
    users = Counter(link for of_job in links.values() for link in of_job)
    racks_of, rack_sizes = topology.racks, Counter(topology.racks)
    factors = {}
    for each in residents:
        profile, gpus = PROFILES.of(each.model), sum(each.counts)
        racks = len({topology.racks[node] for node in each.nodes})
        fewest_nodes = -(-gpus // max(topology.gpus))
        fewest_racks = -(-fewest_nodes // max(rack_sizes.values()))
        single = [topology.capacity[link] for link in links[each.job]]
        multi = [topology.capacity[link] / users[link] for link in links[each.job]]
        scale = min([*single, topology.inside.pcie_gbs]) / min([*multi, topology.inside.pcie_gbs])
        alone = ideal = reduce_s(topology, each.nodes, profile, gpus, racks)
        if reference == "best":
            ordered = sorted(range(topology.num_nodes), key=lambda node: (-rack_sizes[racks_of[node]], racks_of[node]))
            best_s = reduce_s(topology, ordered[:fewest_nodes], profile, gpus, min(racks, fewest_racks))
            ideal = min(alone, best_s)
        step_s = profile.step_s(alone * scale, each.batch_size)
        factors[each.job] = min(1.0, profile.step_s(ideal, each.batch_size) / step_s)
    return factors


@pytest.mark.parametrize("reference", ["best", "alone"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_link_sharing(kind: str, reference: str, seed: int) -> None:
    world = World(KINDS[kind](), random.Random(seed))
    model = LinkSharing(world.topology, PROFILES, reference)
    for _ in range(40):
        world.step(model)
        expected = shared(world.topology, list(world.running.values()), reference)
        assert {job: model.factor(job) for job in world.running} == expected


def table_key(resident: Resident) -> str:
    return f"{key_of(resident.model)},{sum(resident.counts)},{len(resident.nodes)}"


def beside(residents: Sequence[Resident], single: bool) -> dict[int, float]:
    """Return the lowest ratio of the jobs that share a node."""
    factors = {}
    for each in residents:
        ratios = [1.0]
        for other in residents:
            meet = other.job != each.job and set(other.nodes) & set(each.nodes)
            if meet and (single or min(len(each.nodes), len(other.nodes)) > 1):
                # A table of its own each time: nothing that one remembers can help the other.
                ratios.append(Ratios(PROFILES.pairs).of(table_key(each), table_key(other)))
        factors[each.job] = min(ratios)
    return factors


@pytest.mark.parametrize("single", [True, False])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_pair_table(single: bool, seed: int) -> None:
    world = World(TOPOLOGIES["racks"](), random.Random(seed))
    model = PairTable(world.topology, PROFILES, single)
    reported: dict[int, float] = {}
    for step in range(40):
        world.step(model)
        if step % 3:
            continue
        reported = {job: factor for job, factor in reported.items() if job in world.running}
        reported.update({job: model.factor(job) for job in model.changed()})
        assert reported == beside(list(world.running.values()), single)
