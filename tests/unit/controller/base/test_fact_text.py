"""Facts of `headway why` as text for people: a time is never shown as a duration."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import controller
from controller.base.fact_text import ShownFact, is_duration, is_time, shown_fact

NOW_S = 1_800_000_000.0
ROOT = Path(controller.__file__).parent
MAKERS = (*sorted((ROOT / "admin" / "explain").glob("*.py")), ROOT / "preempt" / "text.py")
"""Modules that make facts."""


def names_of_facts() -> set[str]:
    """Return the names of all facts that are numbers of seconds, as the source has them."""
    found = set()
    for path in MAKERS:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Constant(value=str(name)) if name.endswith("_s") and name.isidentifier():
                    found.add(name)
    # of these names, the source has the middle only
    return {name for name in found if not name.startswith("_")} | {
        f"preemption_{stage}_s" for stage in ("asked", "saved", "stopped", "started", "resumed")
    }


def test_each_fact_in_seconds_is_known_as_a_time_a_duration_gpu_time_or_a_rate() -> None:
    found = names_of_facts()

    assert {"submit_time_s", "wait_s", "gpu_s", "advice_since_s", "throughput_window_start_s"} <= found
    assert len(found) > 15
    for name in found:
        kinds = (is_time(name), is_duration(name), name == "gpu_s", name.endswith("_steps_per_s"))
        assert sum(kinds) == 1, name


@pytest.mark.parametrize("name", sorted(name for name in names_of_facts() if is_time(name)))
def test_a_time_is_never_shown_as_a_duration(name: str) -> None:
    fact = shown_fact(name, f"{NOW_S:.3f}")

    assert fact is None or (fact.time_s, fact.text) == (NOW_S, "")


def test_a_time_of_a_newer_controller_is_shown_as_a_time() -> None:
    assert shown_fact("last_checkpoint_s", f"{NOW_S:.0f}") == ShownFact("last checkpoint", "", NOW_S)
    assert shown_fact("time_limit_s", "257698037640") == ShownFact("time limit", "2982616 d 4 h")
    assert shown_fact("next_checkpoint_s", "90") == ShownFact("next checkpoint", "2 min")


def test_facts_for_programs_and_empty_ones_are_not_shown() -> None:
    assert shown_fact("snapshot_digest", "ab") is None
    assert shown_fact("slurm_reason", "") is None
    assert shown_fact("slurm_reason", "None") is None


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("wait_s", "5400", "wait: 1 h 30 min"),
        ("gpu_s", "360000", "GPU time: 100 GPU hours"),
        ("gpu_s", "36000000", "GPU time: 10000 GPU hours"),
        ("throughput_alone_steps_per_s", "2.5", "throughput alone: 2.5 steps/s"),
        ("wait_s", "nan", "wait s: nan"),
        ("wait_s", "in a while", "wait s: in a while"),
        ("preemption_stage", "asked", "preemption stage: asked"),
    ],
)
def test_other_facts_have_words_and_units(name: str, value: str, text: str) -> None:
    fact = shown_fact(name, value)

    assert fact is not None
    assert f"{fact.label}: {fact.text}" == text
