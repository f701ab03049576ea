"""Benchmarks without Slurm run in a tiny size: figures of every kind come out, whatever their values."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from starlette.routing import Route

from controller.web.app import make_app
from controller.web.settings import WebSettings
from policies.api import load_policy
from tests.bench.__main__ import ALL, LONG
from tests.bench.cases import decisions, estimates, web


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


def test_every_page_is_measured() -> None:
    found = web.measure(40, 8, samples=1, paints=0)

    pages = {route.path for route in make_app(WebSettings(token_file=Path("t")), {}).routes if isinstance(route, Route)}
    left_out = {"/healthz", "/sign-in", "/sign-out", "/jobs"}  # /jobs only leads to a job's page
    measured = {figure.name for figure in found.figures if "CPU" not in figure.name}
    names = {path.strip("/") or "overview" for path in pages - left_out - {"/jobs/{job_id}"}}
    assert measured == {f"page: {name}" for name in names | {"a running job", "a waiting job"}}
    assert all(figure.value > 0 for figure in found.figures)


def test_without_chromium_the_findings_say_that_nothing_was_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "CHROMIUM", None)
    (found,) = [each for each in web.measure(40, 8, samples=1, paints=1).figures if "painted" in each.name]
    assert found.value == 0 and "Chromium is not installed" in found.note


@pytest.mark.skipif(web.CHROMIUM is None, reason="no Chromium here")
def test_every_page_is_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_KEPT_S", 0.0)
    found = web.measure(40, 8, samples=1, paints=1)
    names = {figure.name for figure in found.figures if "CPU" not in figure.name}
    pages = {name.removeprefix("page: ") for name in names if name.startswith("page: ")}
    assert names == {f"page: {page}" for page in pages} | {f"first paint in Chromium: {page}" for page in pages}


def test_decisions_are_timed() -> None:
    taken_s, cpu_s = decisions.timed(load_policy("fifo-skip"), decisions.crowded("fifo-skip", 20, 4), 2)

    assert len(taken_s) == len(cpu_s) == 2
