"""Which of gloo's collectives are in progress, from lists as torch's flight recorder writes them."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from headway_job.profiling import gloo_trace, kineto
from headway_job.profiling.window import Pause


def lists(monkeypatch: pytest.MonkeyPatch, dumped: Any) -> None:
    def dump() -> bytes:
        return dumped if isinstance(dumped, bytes) else json.dumps(dumped).encode()

    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", SimpleNamespace(_dump_fr_trace_json=dump))


def entry(called_ns: int, *, retired: bool, name: str = "gloo:all_reduce") -> dict[str, Any]:
    return {"profiling_name": name, "time_created_ns": called_ns, "retired": retired, "state": "scheduled"}


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([entry(5, retired=True), entry(6, retired=False)], True),
        ([entry(5, retired=True), entry(6, retired=True)], False),
        ([entry(1, retired=False), entry(6, retired=True)], False),  # called before the recording
        ([entry(6, retired=True), entry(11, retired=False)], False),  # called after it
        ([entry(6, retired=False, name="nccl:all_reduce")], None),
        ([], None),
    ],
)
def test_only_collectives_of_the_recording_count(
    monkeypatch: pytest.MonkeyPatch, entries: list[Any], found: bool | None
) -> None:
    lists(monkeypatch, {"version": "2.10", "entries": entries})
    assert gloo_trace.in_progress(4, 10) is found


@pytest.mark.parametrize("dumped", [b"no JSON", {}, {"entries": 3}, {"entries": [{"profiling_name": "gloo:barrier"}]}])
def test_a_list_of_another_version_says_nothing(monkeypatch: pytest.MonkeyPatch, dumped: Any) -> None:
    lists(monkeypatch, dumped)
    assert gloo_trace.in_progress(4, 10) is None


def test_a_torch_without_a_list_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", SimpleNamespace())
    assert gloo_trace.in_progress(4, 10) is None


@pytest.mark.parametrize(
    ("says", "steps"),
    [
        ([False], 1),
        ([True, True, False], 6),  # it looks every quarter of a second, with steps of 0.1 s
        ([None] * 9, 13),  # a second or more
    ],
)
def test_a_pause_is_over_once_nothing_is_in_progress(
    monkeypatch: pytest.MonkeyPatch, says: list[bool | None], steps: int
) -> None:
    now_s = 100.0
    monkeypatch.setattr("headway_job.profiling.window.time", SimpleNamespace(monotonic=lambda: now_s))
    answers = iter(says)
    pause, made = Pause(), 1
    while not pause.over_at_step(lambda: next(answers)):
        now_s += 0.1
        made += 1
    assert made == pytest.approx(steps, abs=1)


@pytest.mark.parametrize(
    ("set_by_ns", "asked"), [(0, (1000, 9000)), (-3_600_000_000_000, None), (60_000_000_000, None)]
)
def test_where_the_clock_was_set_any_collective_may_be_one_of_the_recording(
    monkeypatch: pytest.MonkeyPatch, set_by_ns: int, asked: tuple[int, int] | None
) -> None:
    ranges: list[tuple[int, int]] = []
    monkeypatch.setattr(gloo_trace, "in_progress", lambda *times_ns: ranges.append(times_ns))
    recording = object.__new__(kineto.Kineto)
    recording._begun, recording._paused = (
        SimpleNamespace(unix_ns=unix_ns, ns=ns) for unix_ns, ns in [(1000, 500), (9000 + set_by_ns, 8500)]
    )
    recording.in_progress()
    [(begin_ns, end_ns)] = ranges
    assert (begin_ns, end_ns) == (asked or (0, kineto._FOR_EVER_NS))
