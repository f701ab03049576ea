"""Contention sensitivity, and how sure it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.profiles.ideal import step_profile
from controller.profiles.sensitivity import (
    Ideal,
    IdealSource,
    Priors,
    StepProfile,
    best_ideal,
    from_jobs,
    from_profiles,
    from_windows,
    predict_step_s,
    relative_spread,
    ring_bytes,
    sensitivity,
    sent_bytes,
)
from controller.profiles.sightings import ProfileRow
from controller.profiles.windows import RunKey, RunShape, Trained
from simulator.slowdown.profiles.model_profiles import ModelProfile

PRIORS = Priors(window_spread=0.04, job_spread=0.1, prediction_error=0.25)


def test_half_the_speed_is_a_sensitivity_of_two() -> None:
    found = sensitivity(3.0, Ideal(6.0, IdealSource.ALONE, 0.9, 4))
    assert found is not None
    assert found.value == pytest.approx(2.0)


@pytest.mark.parametrize("observed", [None, 0.0])
def test_a_job_that_is_not_observed_has_none(observed: float | None) -> None:
    assert sensitivity(observed, Ideal(6.0, IdealSource.ALONE, 0.9, 4)) is None
    assert sensitivity(3.0, None) is None


def test_a_prediction_below_what_is_seen_is_wrong_but_a_measurement_is_noise() -> None:
    predicted = sensitivity(3.0, Ideal(2.0, IdealSource.PREDICTED, 0.5, 1))
    measured = sensitivity(3.0, Ideal(2.9, IdealSource.ALONE, 0.9, 4))
    assert predicted is not None
    assert measured is not None
    assert predicted.value == 1.0
    assert measured.value == pytest.approx(2.9 / 3.0)


def test_own_windows_come_before_similar_jobs_and_these_before_predictions() -> None:
    own, alike = from_windows([4.0], PRIORS), from_jobs([5.0], PRIORS)
    predicted = from_profiles([StepProfile(0.1, 0.1, 0.0, 0.0, 0.0)], 1, None, PRIORS)
    assert best_ideal(own, alike, predicted) is own
    assert best_ideal(None, alike, predicted) is alike
    assert best_ideal(None, None, predicted) is predicted
    assert best_ideal(None, None, None) is None


def test_more_windows_raise_the_confidence_and_noise_lowers_it() -> None:
    few = from_windows([4.0, 4.1, 3.9], PRIORS)
    many = from_windows([4.0, 4.1, 3.9] * 10, PRIORS)
    wild = from_windows([4.0, 6.0, 2.0], PRIORS)
    one = from_windows([4.0], PRIORS)
    assert few and many and wild and one
    assert wild.confidence < few.confidence < many.confidence < 1
    assert one.confidence == pytest.approx(1 - 1.2533 * 0.04)
    assert (few.steps_per_s, few.samples) == (4.0, 3)


def test_one_similar_job_has_the_confidence_of_similar_jobs() -> None:
    found = from_jobs([4.0], PRIORS)
    assert found is not None
    assert found.confidence == pytest.approx(1 - 0.1 * 2**0.5)


def test_an_outlier_does_not_determine_the_spread() -> None:
    assert relative_spread([1.0, 1.0]) is None
    assert relative_spread([10.0, 10.1, 9.9, 10.0, 99.0]) == pytest.approx(0.0148, abs=0.001)


def test_bytes_by_kind() -> None:
    assert ring_bytes({"all_reduce": 8.0}) == 8.0
    assert ring_bytes({"reduce_scatter": 8.0, "all_gather": 8.0}) == 8.0
    assert ring_bytes({}) == 0.0


def test_all_ranks_of_a_node_load_its_link_in_an_all_to_all() -> None:
    # given 8 ranks on 2 nodes, each of which exchanges 1 MB, that is 125 kB with each rank
    profile = StepProfile(1.0, 0.4, 0.6, 0.0, ring_bytes({"all_to_all": 1e6, "all_reduce": 2e6}, ranks_per_node=4))
    # then 4 ranks send half of it to the other node, and the ring of the all-reduce passes each node once
    assert sent_bytes(profile, 2) == pytest.approx(4 * 4 * 125e3 + 2e6)
    # and so does the profile of a job of that shape; of an unknown shape, one rank counts
    row = ProfileRow(
        time_s=0.0, node="n1", run=RunKey(1, 0), trained=Trained(1, "train.py", ""), param_bytes=None, world_size=8, steps=20,
        step_s=1.0, compute_s=0.4, exposed_s=0.6, hidden_s=0.0, kinds={"all_to_all": 1e6}, shape=RunShape(8, 2),
    )  # fmt: skip
    assert step_profile(row).ring_bytes == pytest.approx(2e6)
    assert step_profile(replace(row, shape=None)).ring_bytes == pytest.approx(0.5e6)


def test_what_a_group_sends_within_its_node_loads_no_link_and_takes_as_long_on_any() -> None:
    # given 2 nodes of 4 ranks: tensor parallelism of 40 MB within a node for 0.3 s, gradients of 10 MB between nodes for 0.1 s
    row = ProfileRow(
        time_s=0.0, node="n1", run=RunKey(1, 0), trained=Trained(1, "train.py", ""), param_bytes=None, world_size=8, steps=20,
        step_s=1.0, compute_s=0.6, exposed_s=0.4, hidden_s=0.0, kinds={"all_reduce": 50e6}, shape=RunShape(8, 2),
        link_kinds={"all_reduce": 10e6}, local_exposed_s=0.3, local_hidden_s=0.0,
    )  # fmt: skip
    profile = step_profile(row)
    assert sent_bytes(profile, 2) == pytest.approx(10e6)
    # then free links shorten only the 0.1 s
    assert predict_step_s(profile, 2, 200e6) == pytest.approx(0.95)
    # and what the hook could not divide counts whole, as in profiles of earlier hooks
    earlier = step_profile(replace(row, link_kinds=None, local_exposed_s=None, local_hidden_s=None))
    assert (sent_bytes(earlier, 2), earlier.communicate_s) == (pytest.approx(50e6), 0.4)
    # on one node nothing passes a link, and nothing says which groups would span nodes on several
    within = step_profile(replace(row, shape=RunShape(8, 1)))
    assert (within.ring_bytes, within.communicate_s) == (pytest.approx(50e6), 0.4)


def test_the_bytes_of_a_sharded_step() -> None:
    """FSDP gathers the parameters twice and scatters the gradients once, each as whole tensors of 14 GB."""
    profile = StepProfile(1.0, 0.4, 0.6, 0.0, ring_bytes({"all_gather": 2 * 14e9, "reduce_scatter": 14e9}))
    assert sent_bytes(profile, 2) == pytest.approx(3 * 14e9 / 2)
    assert sent_bytes(profile, 4) == pytest.approx(3 * 14e9 * 3 / 4)


# --- predictions: two nodes, 4 MB of gradients, 25 MB/s free


def test_a_contended_step_is_predicted_with_its_links_free() -> None:
    # given a job that computes 10 ms and communicates 320 ms as its link is shared by two
    profile = StepProfile(0.33, 0.01, 0.32, 0.0, 4e6)
    # then with the link for itself: 10 + 160 ms
    assert predict_step_s(profile, 2, 25e6) == pytest.approx(0.17)


def test_hidden_communication_stays_hidden() -> None:
    # given half of the shorter (computing, 100 ms) hidden: 50 of 320 ms
    profile = StepProfile(0.37, 0.1, 0.27, 0.05, 4e6)
    assert predict_step_s(profile, 2, 25e6) == pytest.approx(0.1 + 0.16 - 0.5 * 0.1)
    # and where communicating gets shorter than computing, half of that
    assert predict_step_s(profile, 2, 80e6) == pytest.approx(0.1 + 0.05 - 0.5 * 0.05)


def test_one_node_has_no_link_between_nodes_and_an_unknown_link_no_prediction() -> None:
    profile = StepProfile(0.33, 0.01, 0.32, 0.0, 4e6)
    assert predict_step_s(profile, 1, None) == 0.33
    assert predict_step_s(profile, 2, None) is None
    assert from_profiles([profile], 2, None, PRIORS) is None


TIMES = st.floats(0.001, 10)


@given(TIMES, TIMES, st.floats(0, 1), st.floats(0, 1), st.floats(1e6, 1e10), st.integers(2, 16))
def test_the_prediction_follows_the_simulators_law_of_a_step(
    compute_s: float, then_s: float, share: float, rest_s: float, free: float, nodes: int
) -> None:
    hidden_s = share * min(compute_s, then_s)
    profile = StepProfile(rest_s + compute_s + then_s - hidden_s, compute_s, then_s - hidden_s, hidden_s, 4e6)
    now_s = min(2 * (nodes - 1) / nodes * 4e6 / free, then_s)
    law = ModelProfile(compute_s, 4e6, overlap=share).step_s(now_s)
    assert predict_step_s(profile, nodes, free) == pytest.approx(law + rest_s)


@given(TIMES, TIMES, TIMES, TIMES, st.floats(0, 1e9), st.floats(1, 1e10), st.integers(1, 64))
def test_a_free_link_never_makes_a_step_longer(
    step_s: float, compute_s: float, exposed_s: float, hidden_s: float, size: float, free: float, nodes: int
) -> None:
    profile = StepProfile(max(step_s, compute_s + exposed_s), compute_s, exposed_s, hidden_s, size)
    found = predict_step_s(profile, nodes, free)
    assert found is not None
    assert 0 < found <= profile.step_s * (1 + 1e-9)
