"""Models of shared links: their published values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import sqrt

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.state.ring_reduction import RingSpeed, RingTime
from simulator.cluster.topology import flat, rack_tree, rl_taps
from simulator.slowdown.links.link_sharing import LinkSharing
from simulator.slowdown.links.max_min import MaxMin
from simulator.slowdown.links.parameter_server import ParameterServer, transfer
from simulator.slowdown.profiles.model_profiles import ModelProfile, ModelProfiles
from tests.unit.simulator.slowdown.examples import KNOWN, PROFILES, RACKS, at, factors_of


@pytest.mark.parametrize(("communicate_s", "step_s"), [(0.0, 1.0), (0.4, 1.1), (0.6, 1.15), (0.9, 1.45), (3.0, 3.55)])
def test_communicating_hides_behind_the_backward_pass_and_no_further(communicate_s: float, step_s: float) -> None:
    backward = ModelProfile(compute_s=1.0, bytes=1.0, overlap=0.75, hiding=0.6)
    assert backward.step_s(communicate_s) == pytest.approx(step_s)


def test_two_jobs_on_one_nic_have_half_each_and_a_third_is_not_touched() -> None:
    model = MaxMin(RACKS, PROFILES, reference="alone")
    assert factors_of(model, at(0, "even", {0: 4, 1: 4})) == [1.0]
    assert list(model.changed()) == [0]
    model.enter(at(1, "even", {1: 4, 2: 4}))
    model.enter(at(2, "even", {4: 4, 5: 4}))
    assert list(model.changed()) == [0, 1, 2]
    assert [model.factor(job) for job in range(3)] == [pytest.approx(2 / 3), pytest.approx(2 / 3), 1.0]
    model.leave(0)
    assert list(model.changed()) == [1]
    assert model.factor(1) == 1.0


def test_a_flow_gets_the_bandwidth_that_others_cannot_use() -> None:
    # 0 and 1 share an uplink of 6.25: 3.125 each. 2 shares a NIC with 0 and has the other 9.375 of it.
    model = MaxMin(RACKS, PROFILES, reference="alone")
    found = factors_of(model, at(0, "even", {0: 2, 3: 2}), at(1, "even", {1: 2, 4: 2}), at(2, "even", {0: 2, 2: 2}))
    assert found == [pytest.approx(3 / 5), pytest.approx(3 / 5), pytest.approx(2 / (1 + 12.5 / 9.375))]


def test_hidden_communication_costs_nothing_until_it_is_longer_than_computing() -> None:
    model = MaxMin(RACKS, PROFILES, reference="alone")
    half = {"small": replace(KNOWN["hidden"], bytes=6.25e9), "hidden": KNOWN["hidden"]}
    model = MaxMin(RACKS, replace(PROFILES, models=half, default="hidden"), reference="alone")
    small, large = factors_of(model, at(0, "small", {0: 4, 1: 4}), at(1, "hidden", {0: 4, 1: 4}))
    assert (small, large) == (pytest.approx(1.0), pytest.approx(1 / 2))


def test_the_best_reference_counts_being_spread() -> None:
    alone, best = (MaxMin(RACKS, PROFILES, reference=reference) for reference in ("alone", "best"))
    spread = at(0, "even", {0: 2, 3: 2})
    assert factors_of(alone, spread) == [1.0]
    assert factors_of(best, spread) == [pytest.approx(1 / 3)]
    assert factors_of(best, at(1, "even", {1: 8, 2: 8})) == [pytest.approx(1.0)]


def test_a_larger_batch_computes_longer() -> None:
    model = MaxMin(RACKS, PROFILES)
    found = factors_of(
        model, at(0, "batched", {0: 1, 1: 1}, batch_size=300), at(1, "batched", {2: 1, 3: 1}, batch_size=-1)
    )
    assert found == [pytest.approx(3 / 4), pytest.approx(1 / 3)]


def test_with_duty_two_are_slowed_by_the_time_in_which_the_other_sends() -> None:
    # t = (1 + d) s and d = t / (1 + t): t^2 - t - 1 = 0.
    model = MaxMin(RACKS, PROFILES, reference="alone", sharing="duty")
    found = factors_of(model, at(0, "even", {0: 4, 1: 4}), at(1, "even", {0: 4, 1: 4}))
    assert found == [pytest.approx(2 / (1 + (1 + sqrt(5)) / 2), rel=1e-3)] * 2


def test_jobs_on_one_node_slow_no_other() -> None:
    model = MaxMin(RACKS, PROFILES)
    assert factors_of(model, at(0, "even", {0: 4, 1: 4})) == [pytest.approx(0.5)]
    list(model.changed())
    assert factors_of(model, at(1, "even", {0: 4})) == [1.0]
    assert list(model.changed()) == [1]
    model.leave(1)
    assert list(model.changed()) == []


def ring_s(gpus: int, megabytes: float) -> float:
    """Equation 12's first factor, from the two curves."""
    small, large = 0.02829 * sqrt(gpus), 0.13977 * sqrt(gpus)
    return small * megabytes / 100 if megabytes <= 100 else small + (large - small) * (megabytes - 100) / 400


@pytest.mark.parametrize("megabytes", [0.0, 50.0, 100.0, 300.0, 500.0, 548.0])
def test_ring_times_are_interpolated_between_the_two_curves(megabytes: float) -> None:
    assert PROFILES.ring.seconds(9, megabytes * 1e6, 1) == pytest.approx(ring_s(9, megabytes))
    assert PROFILES.ring.seconds(9, megabytes * 1e6, 3) == pytest.approx(1.4 * ring_s(9, megabytes))


def test_equations_12_to_15_on_the_papers_cluster() -> None:
    known = {"vgg": ModelProfile(compute_s=0.5, bytes=300e6)}
    model = LinkSharing(rl_taps(), ModelProfiles(known, {}, PROFILES.interference, default="vgg"))
    # Eight GPUs need two machines, which one rack has. Both jobs are in racks 0 and 1 and share the uplinks: s = 2.
    first = at(0, "vgg", {0: 2, 2: 2})
    second = at(1, "vgg", {1: 4, 3: 4})
    assert factors_of(model, first) == [pytest.approx((0.5 + ring_s(4, 300)) / (0.5 + 1.2 * ring_s(4, 300)))]
    model.enter(second)
    assert model.factor(0) == pytest.approx((0.5 + ring_s(4, 300)) / (0.5 + 1.2 * 2 * ring_s(4, 300)))
    assert model.factor(1) == pytest.approx((0.5 + ring_s(8, 300)) / (0.5 + 1.2 * 2 * ring_s(8, 300)))
    assert list(model.changed()) == [0, 1]
    model.leave(1)
    assert list(model.changed()) == [0]


LINKS = (partial(LinkSharing, reference="alone"), partial(MaxMin, reference="alone"))


@pytest.mark.parametrize("make", LINKS, ids=["link-sharing", "max-min"])
def test_sharing_a_nic_that_is_ten_times_slower_costs_more(make: Callable[..., LinkSharing | MaxMin]) -> None:
    # 300 MB between two nodes take 0.024 s at 12.5 GB/s, and 0.24 s at 1.25 GB/s.
    known = ModelProfiles({"vgg": ModelProfile(compute_s=0.5, bytes=300e6)}, {}, PROFILES.interference, default="vgg")
    usual, slow = (make(flat([8] * 2, [1] * 2, nic_gbs=gbs), known) for gbs in (12.5, 1.25))
    both = at(0, "vgg", {0: 2, 1: 2}), at(1, "vgg", {0: 2, 1: 2})
    fast = factors_of(usual, *both)
    alone_s = ring_s(4, 300) if isinstance(usual, LinkSharing) else 0.024
    assert fast == [pytest.approx((0.5 + alone_s) / (0.5 + 2 * alone_s))] * 2
    slow_s = alone_s + 0.24 - 0.024
    assert factors_of(slow, *both) == [pytest.approx((0.5 + slow_s) / (0.5 + 2 * slow_s))] * 2
    assert fast[0] > slow.factor(0) + 0.1


def test_a_spread_job_on_slow_nics_is_slow_also_alone() -> None:
    known = ModelProfiles({"vgg": ModelProfile(compute_s=0.5, bytes=300e6)}, {}, PROFILES.interference, default="vgg")
    usual, slow = (LinkSharing(flat([8] * 2, [1] * 2, nic_gbs=gbs), known) for gbs in (12.5, 1.25))
    spread = at(0, "vgg", {0: 2, 1: 2})
    assert factors_of(usual, spread) == [1.0]
    ideal_s = 0.5 + ring_s(4, 300)
    assert factors_of(slow, spread) == [pytest.approx(ideal_s / (ideal_s + 0.24 - 0.024))]


def test_a_ring_that_was_fitted_holds_for_the_network_on_which_it_was_measured() -> None:
    fitted = RingTime(small_s=0.1, large_s=0.5, per_rack=0.0)
    assert fitted.seconds_over(4, 100e6, 1, 150e6, RingSpeed(1.25)) == pytest.approx(0.2)
    assert fitted.seconds_over(4, 100e6, 1, 150e6, RingSpeed(0.125)) == pytest.approx(1.2)


SPEEDS = st.floats(0.1, 50.0)


@given(gpus=st.integers(2, 64), megabytes=st.floats(0.0, 2000.0), nic=SPEEDS, uplink=SPEEDS, racks=st.integers(2, 4))
@example(gpus=4, megabytes=100.0, nic=1.25, uplink=6.25, racks=2)  # 0.1646 s in a rack
def test_a_ring_is_never_faster_over_more_racks(
    gpus: int, megabytes: float, nic: float, uplink: float, racks: int
) -> None:
    sent = 2 * (gpus - 1) / gpus * megabytes * 1e6
    for ring in (RingTime(), RingTime(small_s=0.1, large_s=0.5, per_rack=0.0)):
        inside, across = (
            ring.seconds_over(gpus, megabytes * 1e6, count, sent, speed)
            for count, speed in ((1, RingSpeed(nic)), (racks, RingSpeed(nic, uplink)))
        )
        assert across >= inside


def test_on_slow_nics_a_job_is_not_faster_across_racks() -> None:
    """Four GPUs on four nodes, whose NICs have a tenth of the paper's speed."""
    known = ModelProfiles({"it": ModelProfile(compute_s=0.5, bytes=100e6)}, {}, PROFILES.interference, default="it")
    model = LinkSharing(rack_tree([8] * 8, [1] * 8, [0] * 4 + [1] * 4, nic_gbs=1.25), known)
    inside, across = at(0, "it", dict.fromkeys(range(4), 1)), at(1, "it", dict.fromkeys((4, 5, 0, 1), 1))
    model.enter(inside)
    alone = model.factor(0)
    model.leave(0)
    assert factors_of(model, across)[0] < alone


@pytest.mark.parametrize("make", LINKS, ids=["link-sharing", "max-min"])
def test_jobs_that_shared_a_link_are_known_after_they_have_ended_and_in_copies(
    make: Callable[..., LinkSharing | MaxMin],
) -> None:
    model = make(RACKS, PROFILES)
    for resident in (at(0, "even", {0: 4, 1: 4}), at(1, "even", {2: 4}), at(2, "even", {3: 4, 4: 4})):
        model.enter(resident)
    assert model.sharers == set()
    model.enter(at(3, "even", {1: 4, 2: 4}))
    assert model.sharers == {0, 3}
    model.leave(0)
    twin = model.fork()
    twin.enter(at(4, "even", {4: 4, 5: 4}))
    twin.leave(3)
    third = twin.fork()
    model.enter(at(5, "even", {0: 4, 1: 4}))
    assert (model.sharers, twin.sharers, third.sharers) == ({0, 3, 5}, {0, 2, 3, 4}, {0, 2, 3, 4})


def test_jobs_that_do_not_meet_in_an_instant_share_nothing() -> None:
    model = MaxMin(RACKS, PROFILES)
    model.enter(at(0, "even", {0: 4, 1: 4}))
    list(model.changed())
    model.leave(0)
    model.enter(at(1, "even", {0: 4, 1: 4}))
    assert model.sharers == set()


def test_cards_of_different_sockets_are_not_shared() -> None:
    known = {"vgg": ModelProfile(compute_s=0.5, bytes=300e6)}
    model = LinkSharing(rl_taps(), ModelProfiles(known, {}, PROFILES.interference, default="vgg"), reference="alone")
    assert factors_of(model, at(0, "vgg", {0: 2, 1: 2}), at(1, "vgg", {0: 2, 1: 2})) == [1.0, 1.0]
    shared = LinkSharing(rl_taps(), ModelProfiles(known, {}, PROFILES.interference, default="vgg"), reference="alone")
    odd = factors_of(shared, at(0, "vgg", {0: 1, 1: 1}), at(1, "vgg", {0: 1, 1: 1}))
    assert odd == [pytest.approx((0.5 + ring_s(2, 300)) / (0.5 + 2 * ring_s(2, 300)))] * 2


def test_transfers_over_nics() -> None:
    assert transfer([4], 4, [1]) == 0
    assert transfer([1, 1, 1, 1], 4, [1] * 4) == pytest.approx(3 / 4)
    assert transfer([1, 1, 1, 1], 1, [1] * 4) == 3
    assert transfer([1, 1, 1, 1], 2, [1, 2, 1, 1]) == pytest.approx(2 * 3 / 2)
    assert transfer([4, 4], 8, [1, 1]) == 2


def test_servers_that_are_spread_and_share_nics() -> None:
    model = ParameterServer(RACKS, PROFILES)
    # 2 x 12.5 GB over 12.5 GB/s: a unit of transfer takes 2 s, computing 1 s.
    packed, spread = factors_of(model, at(0, "even", {0: 4}), at(1, "even", {1: 2, 2: 2}))
    assert (packed, spread) == (1.0, pytest.approx(1 / (1 + 2 * 1)))
    model.enter(at(2, "even", {2: 2, 3: 2}))
    assert model.factor(1) == pytest.approx(1 / (1 + 2 * 2))
    measured = replace(KNOWN["even"], servers=(0.01, 0.5, 1.0, 0.1, 0.2), batch=100)
    model = ParameterServer(RACKS, replace(PROFILES, models={"even": measured}))
    rest = 1.0 + 0.5 + 0.4 + 0.8
    assert factors_of(model, at(0, "even", {0: 2, 1: 2})) == [pytest.approx(rest / (rest + 1.0))]
