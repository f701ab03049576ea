"""Settings of MARL's experiment, and the figures of an episode.

The paper has 2,000 servers; here most settings have 128 (a fat-tree with k = 8), with as many jobs for each server. The agent that
comes with Headway was trained on 16 servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from policies.learned.training.agents import AgentInEnvironment
from simulator.agents.episodes import make, play
from simulator.envs import MARL
from simulator.papers.marl.bound import average_jct_bound_s
from simulator.papers.marl.episodes import outcome, workload
from simulator.papers.marl.options import G4DN, RACKS, MarlOptions
from simulator.papers.marl.rules.rule import Rule
from simulator.papers.marl.rules.rule import play as play_rule
from simulator.papers.marl.state.data_center import data_center
from simulator.papers.marl.state.jobs import jobs_of
from simulator.papers.marl.world import World
from simulator.reproducing.experiment import Metric, Run, Setting
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators import generate
from simulator.traces.generators.marl import Marl
from simulator.traces.trace import Trace

JCT = "avg_jct_s"
_LABELS = {
    JCT: "average JCT, s",
    "p90_jct_s": "p90 JCT, s",
    "mean_slowdown": "mean of JCT over computing alone",
    "forwarded": "tasks forwarded",
    "put_off": "times that a job was put off",
}
SHOWN = tuple(_LABELS)
ROUNDS, SLOWDOWN_ERROR, TIME_ERROR = "rounds", "slowdown_error", "time_error"
_MORE = {
    ROUNDS: "rounds until 1 % above its best validation",
    SLOWDOWN_ERROR: "error of the slowdown, as a share of the mean",
    TIME_ERROR: "error of the time",
}
MEASURES = {name: Metric(lambda _result: None, says) for name, says in {**_LABELS, **_MORE}.items()}
"""Names of the figures. Episodes have no `Result`, so `figures` computes the values."""


@dataclass(frozen=True, kw_only=True)
class MarlSetting(Setting):
    """A setting of `headway/Marl-v0`."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the world."""


def setting(name: str, says: str, **options: Any) -> MarlSetting:
    """Return the setting with these options of the world; without `k`, a fat-tree of 128 servers."""
    options = {"k": 8, **options}
    asked = MarlOptions(**options)
    center = data_center(asked)
    servers = center.topology.num_nodes
    return MarlSetting(
        name=name,
        says=f"{says}: {servers} servers, {int(center.group_gpus.sum())} GPUs, {center.schedulers} schedulers",
        trace=partial(_trace, asked),
        cluster=center.cluster,
        slowdown=(),
        profiles=paper_profiles("marl"),
        options=options,
    )


def with_other_figures(like: Setting, name: str, says: str, metrics: tuple[str, ...]) -> Setting:
    """Return a setting in which no jobs run: its contenders have other figures. It has the cluster of `like`, for form's sake."""
    shared: dict[str, Any] = {"trace": like.trace, "cluster": like.cluster, "profiles": like.profiles}
    return Setting(name=name, says=says, slowdown=(), metrics=metrics, **shared)


def _trace(asked: MarlOptions, seed: int) -> Trace:
    jobs = asked.traces if isinstance(asked.traces, Marl) else workload(asked, data_center(asked))
    return generate("marl", type(jobs)(**{**vars(jobs), "seed": seed}))


DAILY = setting("daily arrivals", "arrivals by the hours of a day, in place of Google's trace")
UNIFORM = setting("uniform arrivals", "arrivals at equal distances", arrivals="uniform")
POISSON = setting("Poisson arrivals", "Poisson arrivals", arrivals="poisson")
BUSY = setting("twice the jobs", "twice as many jobs, daily arrivals", jobs_per_interval=30.0)
LARGE_SERVERS = setting("servers of 8 GPUs", "servers of two CPUs of 16 cores with 4 GPUs each", architecture="dgx1")
TWO_SIZES = setting("CPUs of two sizes", "a CPU of 16 cores with 4 GPUs, one of 8 with 2", architecture="two-sizes")
MIXED = setting("mixed servers", "20 % with 2 GPUs, 40 % with 4, 40 % with 8", architecture="mixed")
VL2 = setting("VL2", "the network VL2", network="vl2", k=4)
BCUBE = setting("BCube", "the network BCube of four-port switches", network="bcube", k=3, n=4)
TRAINED = setting("16 servers", "the fat-tree of the training", k=4)
CROWDED = setting("three times the jobs", "three times as many jobs, daily arrivals", k=4, jobs_per_interval=45.0)
TESTBED = setting(
    "testbed",
    "section VII, emulated in this world: two racks, 2 to 4 workers and 1 or 2 parameter servers, intervals of 10 minutes",
    network=RACKS,
    k=2,
    architecture=G4DN,
    interval_s=600.0,
    traces=Marl(
        jobs=80, mean_gap_s=900.0, cluster_gpus=48, schedulers=2, least_workers=2, most_workers=4, most_servers=2
    ),
)
"""Figure 11. The paper scales Google's arrivals down, and does not say how far; here jobs ask for three fifths of the GPUs."""
ARRIVALS, SERVERS, NETWORKS = (DAILY, UNIFORM, POISSON, BUSY), (LARGE_SERVERS, TWO_SIZES, MIXED), (VL2, BCUBE)
COMPARED = (*ARRIVALS, *SERVERS, *NETWORKS, TRAINED, CROWDED, TESTBED)
"""Settings with one data center each, in which all schedulers are compared."""
SCHEDULERS = replace(
    BUSY, name="number of schedulers", says="twice as many jobs on 128 servers, divided among 1, 2, 4 or 8 schedulers"
)
WITH_JOBS = (*COMPARED, SCHEDULERS)
"""Settings in which jobs run."""
COUNTS = (1, 2, 4, 8)
"""Numbers of schedulers in SCHEDULERS: divisors of its eight pods."""


def run_rule(rule: Rule, where: Setting, seed: int, **options: Any) -> Run:
    """Let a rule act for all schedulers on the jobs of a seed; `options` change the world's."""
    world, found = _world(where, seed, options)
    play_rule(world, jobs_of(found, world.options, world.center.schedulers), rule, seed)
    return Run(figures(outcome(world)))


def run_agent(served: AgentInEnvironment, where: Setting, seed: int, **options: Any) -> Run:
    """Let an agent act for all schedulers, as `run_rule`."""
    assert isinstance(where, MarlSetting)
    found = where.trace(seed)
    given = {"profiles": where.profiles, "traces": (found,), "shows": served.options["shows"]}
    env = make(MARL, **{**where.options, **given, **options})
    try:
        return Run(figures(play(env, served.agent, seed, {"trace": found}).outcome))
    finally:
        env.close()


def run_bound(where: Setting, seed: int) -> Run:
    """Return the lower bound of the average JCT for the jobs of a seed."""
    world, found = _world(where, seed, {})
    jobs = jobs_of(found, world.options, world.center.schedulers)
    return Run({JCT: average_jct_bound_s(jobs, world.options.interval_s)})


def figures(found: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of an episode. Those of JCTs are missing if a job is not done."""
    return {name: float(found[name]) for name in SHOWN if np.isfinite(found[name])}


def _world(where: Setting, seed: int, options: Mapping[str, Any]) -> tuple[World, Trace]:
    assert isinstance(where, MarlSetting)
    asked = MarlOptions(**{**where.options, "profiles": where.profiles, **options})
    return World(asked, data_center(asked)), where.trace(seed)
