"""Fits find the parameters behind generated measurements, and report their error on rows that they have not seen."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import exp

import pytest

from simulator.errors import SlowdownError
from simulator.slowdown.fitting.held_out import split
from simulator.slowdown.links import link_sharing, parameter_server, step_fit
from simulator.slowdown.neighbours import interference, pair_table
from simulator.slowdown.placement import locality, node_speed, scaling
from simulator.slowdown.profiles.model_profiles import MeasuredInterference, ModelProfile, RingTime

RNG = random.Random(5)


def noisy(value: float, noise: float) -> float:
    return value * exp(RNG.gauss(0, noise)) if noise else value


def locality_rows(noise: float) -> list[locality.LocalityRow]:
    curves = {"a": (1.0, 0.9, 0.5, 0.4), "b": (1.0, 1.0, 0.95, 0.9)}
    return [
        locality.LocalityRow(model, f"{gpus}", tier, noisy(gpus * 3 * curve[tier], noise))
        for model, curve in curves.items()
        for gpus in range(2, 12)
        for tier in range(4)
    ]


def test_locality_curves() -> None:
    curves, report = locality.fit(locality_rows(0.0))
    assert curves["a"] == pytest.approx((1.0, 0.9, 0.5, 0.4))
    assert curves["b"] == pytest.approx((1.0, 1.0, 0.95, 0.9))
    assert report.worst_error < 1e-6
    assert (report.fitted, report.held_out) == (60, 20)
    noisy_curves, worse = locality.fit(locality_rows(0.05))
    assert noisy_curves["a"] == pytest.approx((1.0, 0.9, 0.5, 0.4), rel=0.15)
    assert 0.01 < worse.mean_error < 0.12


def test_a_curve_never_rises_and_fills_what_was_not_measured() -> None:
    rows = [locality.LocalityRow("a", str(at), tier, value) for at in range(9) for tier, value in ((1, 4.0), (3, 5.0))]
    curves, _ = locality.fit(rows)
    assert curves["a"] == (1.0, 1.0, 1.0, 1.0)


def test_pair_tables() -> None:
    truth = {("a", "a"): 0.9, ("a", "b"): 0.5, ("b", "a"): 0.7, ("b", "b"): 0.8}
    rows = [
        pair_table.PairRow(f"{target},{gpus},2", f"{other},4,2", ratio)
        for (target, other), ratio in truth.items()
        for gpus in (2, 4, 8)
    ]
    table, report = pair_table.fit(rows)
    assert table["a,2,2", "b,4,2"] == 0.5
    assert len(table) == 12
    assert report.worst_error == pytest.approx(0)


def test_ring_times() -> None:
    truth = RingTime(0.03, 0.1, 0.25)
    rows = [
        link_sharing.RingRow(gpus, size, racks, truth.seconds(gpus, size, racks))
        for gpus in (2, 4, 8, 16)
        for size in (50e6, 200e6, 500e6)
        for racks in (1, 2, 3)
    ]
    found, report = link_sharing.fit(rows)
    assert (found.small_s, found.large_s, found.per_rack) == pytest.approx((0.03, 0.1, 0.25))
    assert report.worst_error < 1e-6
    alone, _ = link_sharing.fit([row for row in rows if row.racks == 1])
    assert alone.per_rack == 0.2


def test_interference() -> None:
    truth = MeasuredInterference((0.02, 0.3, 0.1), (0.4, 0.2), 0.05)
    rows = []
    for _ in range(200):
        numbers = (RNG.uniform(0.5, 12), RNG.uniform(1, 6), RNG.uniform(0, 1), RNG.uniform(0, 1))
        rows.append(interference.InterferenceRow(*numbers, interference.slowdown(truth, *numbers)))
    found, report = interference.fit(rows, seed=3)
    assert report.worst_error < 0.01
    assert found.alpha[1] == pytest.approx(0.3, rel=0.1)
    assert found.beta == pytest.approx((0.4, 0.2), rel=0.1)
    assert found.most_cores == max(row.others_cpu for row in rows)


def test_parameter_servers() -> None:
    truth = {"a": (0.01, 0.2, 0.4, 0.03, 0.0), "b": (0.002, 0.0, 1.0, 0.0, 0.05)}
    rows = []
    for model, (a, b, c, d, e) in truth.items():
        for workers in range(1, 7):
            for servers in range(1, 7):
                step_s = a * 64 / workers + b + c * workers / servers + d * workers + e * servers
                rows.append(parameter_server.ServerRow(model, 64, workers, servers, 64 / step_s))
    found, report = parameter_server.fit(rows)
    assert report.worst_error < 1e-6
    for model, numbers in truth.items():
        assert found[model] == pytest.approx(numbers, abs=1e-6)


def test_scaling() -> None:
    truth = {"a": (0.05, 0.001), "b": (0.3, 0.0)}
    rows = [
        scaling.ScalingRow(model, setting, gpus, scale * scaling.speedup(gpus, *law))
        for model, law in truth.items()
        for setting, scale in (("32", 10.0), ("64", 7.0))
        for gpus in (1, 2, 4, 8, 16, 32)
    ]
    found, report = scaling.fit(rows)
    assert report.worst_error < 1e-6
    assert found["a"] == pytest.approx((0.05, 0.001), abs=1e-6)
    assert found["b"] == pytest.approx((0.3, 0.0), abs=1e-6)


def test_node_speeds() -> None:
    speeds = {"old": 0.25, "new": 1.0, "mid": 0.6}
    rows = [
        node_speed.SpeedRow(kind, model, 40 * speed * scale)
        for kind, speed in speeds.items()
        for model, scale in (("a", 1.0), ("b", 3.0), ("c", 0.2), ("d", 9.0))
    ]
    found, report = node_speed.fit(rows)
    assert found == pytest.approx(speeds)
    assert report.worst_error < 1e-6


@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
def test_steps(overlap: float) -> None:
    truth = ModelProfile(0.2, 400e6, overlap=overlap)
    rows = []
    for nodes in (1, 2, 4):
        for gbs in (0.5, 1.0, 2.0, 4.0, 8.0, 12.5):
            row = step_fit.StepRow("a", nodes, gbs, 1.0)
            rows.append(step_fit.StepRow("a", nodes, gbs, truth.step_s(truth.bytes * step_fit.per_byte_s(row))))
    found, report = step_fit.fit(rows)
    assert report.worst_error < 1e-6
    assert (found["a"].compute_s, found["a"].bytes) == pytest.approx((0.2, 400e6))
    assert found["a"].overlap == pytest.approx(overlap)
    merged = step_fit.merged(found, {"a": ModelProfile(9.0, 9.0, cpu=2.5)})
    assert (merged["a"].cpu, merged["a"].compute_s) == (2.5, pytest.approx(0.2))


def test_splits_are_seeded_and_complete() -> None:
    rows = list(range(1, 41))
    fitted, held_out = split(rows, float, seed=1)
    assert sorted([*fitted, *held_out]) == rows
    assert len(held_out) == 10
    assert split(rows, float, seed=1) == (fitted, held_out)
    assert split(rows, float, seed=2) != (fitted, held_out)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (lambda: locality_rows(0.0)[:3], "too few"),
        (lambda: [*locality_rows(0.0), locality.LocalityRow("a", "2", 0, 0.0)], "row 81"),
        (lambda: [*locality_rows(0.0), locality.LocalityRow("a", "2", 0, float("nan"))], "row 81"),
        (lambda: [locality.LocalityRow("a", str(at), 0, 1.0) for at in range(9)], "none of the held-out rows"),
    ],
)
def test_data_that_cannot_be_fitted_is_reported(rows: Callable[[], list[locality.LocalityRow]], says: str) -> None:
    with pytest.raises(SlowdownError, match=says):
        locality.fit(rows())
