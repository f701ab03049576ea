"""Slowdowns measured on this machine: `python -m simulator.papers.marl.interference_fit.measuring [--store]`.

Each sample is one emulated job (`emulated`) beside one to three others, measured twice. Its slowdown is the time of a step over
that of a step that never waits: the least CPU seconds that were measured for a step of its kind, and the seconds of its GPU. Cores
of others are those of the emulated jobs alone, and the mean number of other processes that were runnable just before, while all
emulated jobs were paused: whatever else the machine does is interference as well, like the paper's generator of CPU load. It
prints one JSON object; with `--store` the measurements become those of `headway-sim reproduce marl`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from simulator.papers.marl.interference_fit.emulated import KINDS, EmulatedJob, SoFar, copying_bandwidth
from simulator.papers.programs import answer, progress
from simulator.slowdown.neighbours.interference import InterferenceRow

FILE = Path(__file__).with_name("measured.json")
_MOST_OTHERS = 3
_MIB = 1 << 20
_FOREIGN_WINDOW_S = 0.3
_LOOK_EVERY_S = 0.01


@dataclass(frozen=True, slots=True)
class Use:
    """Use of the host by a job that never waits."""

    step_s: float
    cores: float
    copying: float
    """Share of the bandwidth of copying."""

    @staticmethod
    def of(name: str, cpu_s: float, bandwidth: float) -> Use:
        """Return the use of a kind of job that needs so many CPU seconds for a step; `bandwidth` in bytes/s."""
        kind = KINDS[name]
        step_s = cpu_s + kind.gpu_s
        return Use(step_s, cpu_s / step_s, kind.copied_mib * _MIB / step_s / bandwidth)


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured job beside others."""

    foreign: float
    """Mean number of runnable processes other than emulated jobs."""
    step_s: tuple[float, float]
    """Seconds of a step, measured twice."""
    cpu_s: Mapping[str, float]
    """Least CPU seconds of a step of each kind that took part."""


def runnable(window_s: float = _FOREIGN_WINDOW_S, stat: Path = Path("/proc/stat")) -> float:
    """Return the mean number of runnable processes of the machine without this one."""
    counts: list[int] = []
    end = time.perf_counter() + window_s
    while not counts or time.perf_counter() < end:
        lines = stat.read_text(encoding="ascii").splitlines()
        counts.append(next(int(line.split()[1]) for line in lines if line.startswith("procs_running ")) - 1)
        time.sleep(_LOOK_EVERY_S)
    return float(np.mean(counts))


def sample(name: str, others: Sequence[str], window_s: float) -> Sample:
    """Measure a job of that kind beside others."""
    names = (name, *others)
    jobs = [EmulatedJob(KINDS[each]) for each in names]
    try:
        for job in jobs:
            _wait_for_step(job)
            job.pause()
        foreign = runnable()
        for job in jobs:
            job.resume()
        before = [job.so_far for job in jobs]
        step_s = (_step_s(jobs[0], window_s), _step_s(jobs[0], window_s))
        cpu_s: dict[str, float] = {}
        for each, job, then in zip(names, jobs, before, strict=True):
            now = job.so_far
            if made := now.steps - then.steps:
                cpu_s[each] = min(cpu_s.get(each, np.inf), (now.cpu_s - then.cpu_s) / made)
        return Sample(foreign, step_s, cpu_s)
    finally:
        for job in jobs:
            job.close()


def _step_s(job: EmulatedJob, window_s: float) -> float:
    """Return the mean seconds of the steps of a window, from the end of one step to the end of another.

    Both ends are those that the job recorded: this process may see them much later where cores are short.
    """
    begin = _wait_for_step(job)
    while time.perf_counter() < begin.ended_s + window_s:
        time.sleep(_LOOK_EVERY_S)
    end = _wait_for_step(job)
    return (end.ended_s - begin.ended_s) / (end.steps - begin.steps)


def _wait_for_step(job: EmulatedJob) -> SoFar:
    """Wait for the end of a step; return the steps so far."""
    before = job.so_far.steps
    while (now := job.so_far).steps == before:
        time.sleep(0.0005)
    return now


def measure(samples: int, window_s: float, seed: int) -> dict[str, Any]:
    """Measure so many samples of random jobs."""
    rng, names = np.random.default_rng(seed), sorted(KINDS)
    bandwidth = copying_bandwidth()
    rows, cpu_s = [], {name: float("inf") for name in names}
    for at in range(samples):
        name, *others = (names[kind] for kind in rng.integers(len(names), size=1 + rng.integers(1, _MOST_OTHERS + 1)))
        progress(f"sample {at + 1} of {samples}")
        found = sample(name, others, window_s)
        step_ms = [round(1e3 * seconds, 3) for seconds in found.step_s]
        rows.append({"job": name, "others": others, "foreign": round(found.foreign, 2), "step_ms": step_ms})
        for each, seconds in found.cpu_s.items():
            cpu_s[each] = min(cpu_s[each], seconds)
    return {
        "cores": os.cpu_count(),
        "gb_per_s": round(bandwidth / 1e9, 2),
        "cpu_ms": {name: round(1e3 * seconds, 3) for name, seconds in cpu_s.items() if np.isfinite(seconds)},
        "rows": rows,
    }


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured rows. Invariant: `again[i]` is the slowdown of `rows[i]`, measured a second time."""

    rows: tuple[InterferenceRow, ...]
    again: tuple[float, ...]
    foreign: float
    """Mean number of runnable processes other than emulated jobs."""

    @staticmethod
    def of(found: Mapping[str, Any]) -> Measured:
        """Return what `measure` found."""
        uses = {name: Use.of(name, ms / 1e3, found["gb_per_s"] * 1e9) for name, ms in found["cpu_ms"].items()}
        both = [_row_and_again(row, uses) for row in found["rows"]]
        foreign = float(np.mean([row["foreign"] for row in found["rows"]]))
        return Measured(tuple(row for row, _ in both), tuple(again for _, again in both), foreign)


def _row_and_again(row: Mapping[str, Any], uses: Mapping[str, Use]) -> tuple[InterferenceRow, float]:
    mine, near = uses[row["job"]], [uses[name] for name in row["others"]]
    slowdown, again = (ms / 1e3 / mine.step_s - 1.0 for ms in row["step_ms"])
    found = InterferenceRow(
        others_cpu=sum(use.cores for use in near) + row["foreign"],
        own_cpu=mine.cores,
        others_pcie=sum(use.copying for use in near),
        own_pcie=mine.copying,
        slowdown=slowdown,
    )
    return found, again


@cache
def stored() -> Measured:
    """Return the measurements that come with Headway."""
    return Measured.of(json.loads(FILE.read_text(encoding="utf-8")))


def as_text(found: Mapping[str, Any]) -> str:
    """Return measurements as JSON, with one line for each row."""
    head = json.dumps({name: value for name, value in found.items() if name != "rows"})[:-1]
    return f'{head}, "rows": [\n' + ",\n".join(json.dumps(row) for row in found["rows"]) + "\n]}\n"


def program(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.papers.marl.interference_fit.measuring",
        description="Measure how much emulated jobs slow each other down on this machine.",
    )
    parser.add_argument("--samples", type=int, default=160)
    parser.add_argument("--window", type=float, default=0.7, help="seconds of each of the two parts of a sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", action="store_true", help="keep the measurements as those that come with Headway")
    given = parser.parse_args(arguments)
    found = measure(given.samples, given.window, given.seed)
    if given.store:
        FILE.write_text(as_text(found), encoding="utf-8")
    return found


if __name__ == "__main__":
    sys.exit(answer(program))
