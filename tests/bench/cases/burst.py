"""A hundred jobs at once, by a hundred sbatch commands and as one array, through Headway and without it."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.measuring.figures import Findings, spread
from tests.bench.measuring.grounds import Side, pair, stamped_s, until

JOBS = 100
_SPEC: dict[str, Any] = {"nodes": 13}
"""13 nodes of 8 GPUs: room for all of them at once."""
_SUBMITTERS = 4
"""sbatch commands that run at the same time."""
_COUNTED_S = 5.0
_SETTLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst, in seconds after its last sbatch had ended."""

    submission_s: float
    """Time from the start of the first sbatch to the end of the last."""
    last_running_s: float
    last_stamped_s: float
    bulk_per_s: float
    """Queries for all jobs, per second of the five seconds after the first sbatch."""


def run(*, quick: bool) -> Findings:
    """Measure."""
    rounds = 1 if quick else 3
    findings = Findings("burst")
    with pair(**_SPEC) as sides:
        for kind in ("commands", "array"):
            found: dict[str, list[Burst]] = {side.name: [] for side in sides}
            for _ in range(rounds):
                for side in sides:
                    found[side.name].append(_burst(side, kind))
                    side.clear()
                    time.sleep(_SETTLE_S)
            _report(findings, kind, found)
    return findings


def _burst(side: Side, kind: str) -> Burst:
    queries = side.bulk_queries()
    begun_s = time.time()
    job_ids, paths = _by_commands(side) if kind == "commands" else _as_array(side)
    submitted_s = time.time()
    until(lambda: all(path.exists() for path in reversed(paths)), f"{side.name}: {JOBS} jobs start", every_s=0.05)
    until(lambda: all(stamped_s(path) for path in paths), "stamps are written")
    time.sleep(max(begun_s + _COUNTED_S - time.time(), 0.0))
    counted_s = time.time() - begun_s
    asked = side.bulk_queries() - queries
    running = side.running()
    last_s = max(stamped_s(path) or 0.0 for path in paths)
    return Burst(
        submission_s=submitted_s - begun_s,
        last_running_s=max(running[job_id] for job_id in job_ids) - submitted_s,
        last_stamped_s=last_s - submitted_s,
        bulk_per_s=asked / counted_s,
    )


def _by_commands(side: Side) -> tuple[list[str], list[Path]]:
    stamps = [side.new_stamp() for _ in range(JOBS)]
    env = side.environment()

    def submit(stamp: Path) -> str:
        argv = side.sbatch_argv(stamp)
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    with ThreadPoolExecutor(_SUBMITTERS) as pool:
        job_ids = list(pool.map(submit, stamps))
    return job_ids, [stamp.with_name(f"{stamp.name}.one") for stamp in stamps]


def _as_array(side: Side) -> tuple[list[str], list[Path]]:
    stamp = side.new_stamp()
    argv = side.sbatch_argv(stamp, f"--array=1-{JOBS}")
    done = subprocess.run(argv, env=side.environment(), capture_output=True, text=True, timeout=60, check=True)
    tasks = range(1, JOBS + 1)
    return [f"{done.stdout.strip()}_{task}" for task in tasks], [
        stamp.with_name(f"{stamp.name}.{task}") for task in tasks
    ]


def _report(findings: Findings, kind: str, found: dict[str, list[Burst]]) -> None:
    what = f"{JOBS} sbatch" if kind == "commands" else f"array of {JOBS}"
    for name, bursts in found.items():
        target = 2.0 if name == "Headway" else None
        first_s = median(burst.last_stamped_s + burst.submission_s for burst in bursts)
        for label, values, more in (
            ("last RUNNING", [burst.last_running_s for burst in bursts], ""),
            (
                "last script runs",
                [burst.last_stamped_s for burst in bursts],
                f"; after the first sbatch: {first_s:.3g}",
            ),
        ):
            findings.add(f"{what}, {name}: {label}", median(values), "s", target, f"{spread(values)}{more}")
            findings.keep(f"{what}, {name}: {label}, s", values)
        findings.keep(f"{what}, {name}: submission, s", [burst.submission_s for burst in bursts])
    bulk = max(burst.bulk_per_s for burst in found["Headway"])
    findings.add(f"{what}: bulk queries that slurmctld sees", bulk, "/s", 1.0, "most of all rounds")
