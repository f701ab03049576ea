"""A replay of a trace of jobs on the mini-cluster, under one policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fidelity.measuring.ground import Ground
from tests.fidelity.measuring.mix import TrainingJob
from tests.fidelity.records import Replay

_PATIENCE_S = 400.0


def replay(ground: Ground, mix: Sequence[TrainingJob], policy: str, says: Callable[[str], None]) -> Replay:
    """Submit every job at its time, and wait for the last to end."""
    names = [f"{policy}-{job.name}" for job in mix]
    with ground.scheduled_by(policy):
        busy_s, all_s = cpu_s()
        began_s = time.time()
        for job, name in zip(mix, names, strict=True):
            time.sleep(max(0.0, began_s + job.submit_s - time.time()))
            ground.submit(job, name)
        ground.wait(names, _PATIENCE_S)
        busy_then_s, all_then_s = cpu_s()
    runs = tuple(ground.run_of(name) for name in names)
    found = Replay(policy, began_s, runs, (busy_then_s - busy_s) / (all_then_s - all_s))
    says(f"{policy}: mean JCT {found.avg_jct_s:.1f} s, cores busy {found.cpu_busy:.0%}")
    return found


def cpu_s() -> tuple[float, float]:
    """Return the busy ticks and all ticks of all cores, since the machine's boot."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], float(sum(ticks))
