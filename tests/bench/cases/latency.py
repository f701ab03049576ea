"""Time from sbatch to RUNNING, with Headway and without it, in turns on two idle clusters of the same kind.

slurmctld looks for jobs to start once a second, so that even without Headway a job waits for anything up to a second. That
is why every job is submitted at a random moment, and why the time for which Headway holds a job is reported as well: the part
of the delay that slurmctld's second does not blur.
"""

from __future__ import annotations

import random
import subprocess
import time
from dataclasses import dataclass

from tests.bench.measuring.figures import Findings, percentile
from tests.bench.measuring.grounds import Side, pair, stamped_s, until

_GAP_S = (0.05, 1.1)
"""Longest pause before each job: longer than slurmctld's second, so that no phase of it is favoured."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One job."""

    job_id: str
    submitted_s: float
    """Time just before sbatch was started."""
    accepted_s: float
    """Time at which sbatch had ended."""
    stamped_s: float
    """Time of the first line of the batch script."""


def run(*, quick: bool) -> Findings:
    """Measure."""
    pairs = 8 if quick else 100
    findings = Findings("latency")
    rng = random.Random(1)
    samples: dict[str, list[Sample]] = {}
    with pair(nodes=4) as sides:
        for number in range(pairs + 1):
            for side in sides:
                time.sleep(rng.uniform(*_GAP_S))
                sample = _one(side)
                side.clear()
                if number:  # the first of each warms caches
                    samples.setdefault(side.name, []).append(sample)
        ours, theirs = (_Delays.of(samples[side.name], side) for side in sides)
    _report(findings, ours, theirs)
    return findings


def _one(side: Side) -> Sample:
    stamp = side.new_stamp()
    argv, env = side.sbatch_argv(stamp), side.environment()
    submitted_s = time.time()
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=True)
    accepted_s = time.time()
    path = stamp.with_name(f"{stamp.name}.one")
    until(lambda: stamped_s(path), f"{side.name}: job {done.stdout.strip()} starts")
    found = stamped_s(path)
    assert found is not None
    return Sample(done.stdout.strip(), submitted_s, accepted_s, found)


@dataclass(frozen=True, slots=True)
class _Delays:
    """Seconds since just before sbatch was started, for each job."""

    accepted: list[float]
    running: list[float]
    """Start times of Slurm's accounting."""
    stamped: list[float]
    released: list[float]
    """Times at which Headway had released the jobs; empty without Headway."""

    @classmethod
    def of(cls, samples: list[Sample], side: Side) -> _Delays:
        running, released = side.running(), side.released()
        return cls(
            [sample.accepted_s - sample.submitted_s for sample in samples],
            [running[sample.job_id] - sample.submitted_s for sample in samples],
            [sample.stamped_s - sample.submitted_s for sample in samples],
            [released[sample.job_id] - sample.submitted_s for sample in samples if released],
        )


def _report(findings: Findings, ours: _Delays, theirs: _Delays) -> None:
    for what, mine, other in (
        ("script's first line", ours.stamped, theirs.stamped),
        ("Slurm says RUNNING", ours.running, theirs.running),
    ):
        findings.keep(f"{what}, Headway, s", mine)
        findings.keep(f"{what}, Slurm alone, s", other)
        for label, percent, limit in (("median", 50, 1.5), ("p99", 99, 2.0)):
            a, b = percentile(mine, percent), percentile(other, percent)
            note = f"{a * 1e3:.0f} ms against {b * 1e3:.0f} ms, {len(mine)} each"
            findings.add(f"{what}: {label}, Headway / Slurm alone", a / b, "x", limit, note)
    findings.keep("Headway releases, s", ours.released)
    for label, percent in (("median", 50), ("p99", 99)):
        held_s = percentile(ours.released, percent)
        findings.add(f"Headway releases: {label}", held_s * 1e3, "ms", note="sbatch started → hold taken off")
    findings.keep("sbatch returns, Headway, s", ours.accepted)
    findings.keep("sbatch returns, Slurm alone, s", theirs.accepted)
