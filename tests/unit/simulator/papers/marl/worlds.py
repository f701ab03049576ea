"""Small worlds of MARL with jobs whose times can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.state.data_center import data_center
from simulator.papers.marl.state.jobs import jobs_of
from simulator.papers.marl.world import World
from simulator.slowdown.profiles.model_profiles import MeasuredInterference, ModelProfile, ModelProfiles
from simulator.traces.trace import Trace
from tests.unit.simulator.envs.worlds import trace_of

INTERVAL_S = 1000.0
PROFILES = ModelProfiles(
    {
        "plain": ModelProfile(compute_s=1.0, bytes=1.25e9, cpu=6.0, pcie=0.1),
        "heavy": ModelProfile(compute_s=2.0, bytes=2.5e9, cpu=4.0, pcie=0.3),
    },
    {},
    # S = 0.1 (exp(U_c / 4) - 1) + 2 U_p
    MeasuredInterference(alpha=(0.1, 0.25, 0.0), beta=(2.0, 0.0), constant=-0.1),
)


def sequence(
    *jobs: tuple[float, int, float], servers: Sequence[int], models: Sequence[str] = (), schedulers: Sequence[int] = ()
) -> Trace:
    """Jobs of (submission in s, workers, duration in s)."""
    return trace_of(
        *jobs,
        models=models or ["plain"] * len(jobs),
        vc=[f"scheduler-{at}" for at in schedulers or [0] * len(jobs)],
        extra={"num_ps": list(map(str, servers))},
    )


def world_of(trace: Trace, **options: Any) -> World:
    """The fat-tree with k = 4: four schedulers of four servers, two below each edge switch; links of 1.25 GB/s at servers."""
    asked = MarlOptions(**{"k": 4, "interval_s": INTERVAL_S, "profiles": PROFILES, **options})
    center = data_center(asked)
    world = World(asked, center)
    world.begin(jobs_of(trace, asked, center.schedulers))
    return world
