"""Benchmarks without Slurm run in a tiny size: figures of every kind come out, whatever their values."""

from __future__ import annotations

import importlib

import pytest

from policies.api import load_policy
from tests.bench.__main__ import ALL, LONG
from tests.bench.cases import decisions, estimates


@pytest.mark.parametrize("name", [*ALL, *LONG])
def test_every_benchmark_can_be_run(name: str) -> None:
    assert callable(importlib.import_module(f"tests.bench.cases.{name}").run)


def test_forecasts_of_starts_are_measured() -> None:
    found = estimates.measure(["fifo-skip", "las"], jobs=30, nodes=4, runs=20, samples=1)

    assert len(found.figures) == 4
    assert all(figure.value > 0 for figure in found.figures)
    assert "30 ranges for 30 waiting jobs; rule: its own" in found.figures[0].note


def test_forecasts_of_every_rule_are_measured() -> None:
    names = set(estimates.ruled())

    assert {"fifo", "fifo-skip", "backfill", "sjf", "srtf", "srsf", "las", "tiresias"} <= names
    assert not {"headway-rl", "contention-greedy", "drf"} & names


def test_decisions_are_timed() -> None:
    taken_s, cpu_s = decisions.timed(load_policy("fifo-skip"), decisions.crowded("fifo-skip", 20, 4), 2)

    assert len(taken_s) == len(cpu_s) == 2
