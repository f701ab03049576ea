"""Models of jobs on one node: their published values."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest

from simulator.cluster.topology import flat
from simulator.slowdown.neighbours.interference import HostInterference
from simulator.slowdown.neighbours.pair_table import PairTable
from simulator.slowdown.profiles.model_profiles import MeasuredInterference, ModelProfile, ModelProfiles
from simulator.slowdown.profiles.papers import INTERFERENCE, paper_profiles
from tests.unit.simulator.slowdown.examples import PROFILES, RACKS, at, factors_of


def test_a_job_is_as_fast_as_beside_its_worst_neighbour() -> None:
    pairs = {("a", "b"): 0.9, ("a", "c"): 0.6, ("b", "a"): 0.8, ("c", "a"): 1.2, ("a,4,1", "b,4,1"): 0.7}
    profiles = replace(PROFILES, pairs=pairs, default="")
    model = PairTable(RACKS, profiles)
    first, second, third = at(0, "a", {0: 2, 1: 2}), at(1, "b", {0: 2}), at(2, "c", {1: 2})
    assert factors_of(model, first, second, third) == [0.6, 0.8, 1.0]
    list(model.changed())
    model.leave(2)
    assert list(model.changed()) == [0]
    assert model.factor(0) == 0.9
    assert factors_of(PairTable(RACKS, profiles), at(0, "A", {3: 4}), at(1, "B", {3: 4})) == [0.7, 0.8]
    assert factors_of(PairTable(RACKS, profiles, single=False), first, second, third) == [1.0, 1.0, 1.0]


def test_the_papers_worst_sensitivities() -> None:
    stated = {("FSDP", "MoE"): 1.96, ("MoE", "FSDP"): 3.00, ("FSDP", "MobileNetV3"): 1.35, ("MoE", "MobileNetV3"): 1.43}
    for (target, other), sensitivity in stated.items():
        factor, _ = factors_of(
            PairTable(RACKS, paper_profiles()), at(0, target, {0: 2, 1: 2}), at(1, other, {0: 2, 1: 2})
        )
        assert 1 / factor == pytest.approx(sensitivity, rel=0.03)


def test_section_5_of_marl() -> None:
    known = {"x": ModelProfile(1.0, 1.0, cpu=3.0, pcie=0.2), "y": ModelProfile(1.0, 1.0, cpu=5.0, pcie=0.4)}
    by = MeasuredInterference((0.01, 0.2, 0.1), (0.5, 0.25), 0.03)
    model = HostInterference(RACKS, ModelProfiles(known, {}, by, default="x"), cores=8)
    # x is alone on socket 0; both y are on socket 1.
    x, first, second = factors_of(model, at(0, "x", {0: 4}), at(1, "y", {0: 2}), at(2, "y", {0: 2}))
    over = 4 * 5 - 8
    assert x == pytest.approx(1 / (1 + 0.01 * exp(0.2 * over + 0.1 * 12) + 0.25 * 0.8 + 0.03))
    assert first == second
    same = 2 * 5 + max(0, 4 * 3 - 8)
    assert first == pytest.approx(1 / (1 + 0.01 * exp(0.2 * same + 0.1 * 10) + 0.5 * 0.8 + 0.25 * 0.8 + 0.03))
    assert factors_of(model, at(3, "x", {1: 8})) == [1.0]


def speed_beside(neighbours: int, gpus: int) -> float:
    """Return the speed of a job of one GPU beside others of one GPU on a node of so many, by the papers' coefficients.

    Its model and theirs use six cores, and hardly any PCIe.
    """
    topology = flat((gpus,), (2,))
    jobs = [at(job, "dssm", {0: 1}) for job in range(neighbours + 1)]
    return factors_of(HostInterference(topology, paper_profiles()), *jobs)[0]


def test_marls_law_is_that_of_the_paper_on_its_servers() -> None:
    scale, exponent, _ = INTERFERENCE.alpha
    # Two GPUs in each group: one neighbour there, and two in the other group, with four cores beyond their CPU's eight.
    for neighbours, cores in ((1, 6), (2, 6), (3, 6 + 4)):
        expected = 1 / (1 + scale * (exp(exponent * cores) - 1))
        assert speed_beside(neighbours, gpus=4) == pytest.approx(expected, rel=0.01)


def test_marls_law_is_not_extrapolated_to_nodes_of_more_gpus() -> None:
    assert speed_beside(7, gpus=8) == pytest.approx(speed_beside(3, gpus=4), rel=0.01)
    assert speed_beside(7, gpus=8) > 0.5


def test_marls_law_goes_by_the_gpus_that_jobs_have_where_a_run_follows_these() -> None:
    topology = flat((4,), (2,))

    def speed(*masks: int) -> float:
        jobs = [replace(at(job, "dssm", {0: 1}), gpu_masks={0: mask} if mask else {}) for job, mask in enumerate(masks)]
        return factors_of(HostInterference(topology, paper_profiles()), *jobs)[0]

    assert speed(0b1, 0b100) == pytest.approx(1.0, abs=0.01), "one on each socket"
    assert speed(0b1, 0b10) == speed(0b1000, 0b100) == speed(0, 0) < 0.95, "on one socket, as is assumed"
    assert speed(0b1, 0) == speed(0, 0), "assumed, because the GPUs of one are not known"
    two = replace(at(0, "dssm", {0: 2}), gpu_masks={0: 0b1001})
    beside = replace(at(1, "dssm", {0: 2}), gpu_masks={0: 0b0110})
    apart = [replace(two, gpu_masks={0: 0b0011}), replace(beside, gpu_masks={0: 0b1100})]
    mixed, own = (factors_of(HostInterference(topology, paper_profiles()), *jobs)[0] for jobs in ([two, beside], apart))
    assert mixed < own


def test_one_neighbour_on_the_socket_costs_about_what_marl_saw() -> None:
    profiles = paper_profiles("marl")
    names = [name for name in profiles.models if name != "ctc"]
    lost = [
        1 / factors_of(HostInterference(RACKS, profiles), at(0, name, {0: 1}), at(1, other, {0: 1}))[0] - 1
        for name in names
        for other in names
    ]
    assert sum(lost) / len(lost) == pytest.approx(0.30, abs=0.001)
