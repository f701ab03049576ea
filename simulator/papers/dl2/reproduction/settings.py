"""Settings of DL2's experiment, and how an agent runs in one.

The paper does not give enough to repeat its testbed: neither demands nor load nor what figure 8 shows in numbers. The setting here
was chosen so that the baselines come out as in its section 6.3, before any agent was trained in it (`baselines_by_load.py`,
on the seeds of validation): DRF occupies 62 % of the GPUs there, Optimus is 32 % better than DRF (from 44.1 and 17.5 %), and
Tetris is between DRF and DL2. Cluster, jobs and load have stayed since. But now the worker and the server of one action share a
node, by which DRF gains more than Optimus does: Optimus is 20 % better than DRF, and Tetris 25 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from policies.learned.training.agents import Agent, AgentInEnvironment
from simulator.agents.episodes import make, play
from simulator.agents.named import agent_of
from simulator.cluster.cluster import parse_cluster
from simulator.envs import ELASTIC
from simulator.reproducing.experiment import METRICS, Contender, Kind, Run, Setting, run_of
from simulator.runs.progress import OnProgress
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.dl2 import DL2, generate
from simulator.traces.trace import Trace

CLUSTER = "36x2"
"""Nodes of two GPUs, as in the paper's testbed, which has 13."""
JOBS, GAP_S = 30, 1800.0
"""30 jobs, as in its testbed; the mean gap is chosen."""
CONCURRENT = 20
"""J of agents that act by a rule; a trained agent has its own."""
SHOWN = ("avg_jct_s", "p90_jct_s", "makespan_s", "utilization")
MEASURES = {name: METRICS[name] for name in SHOWN}


@dataclass(frozen=True, kw_only=True)
class ElasticSetting(Setting):
    """A setting of agents in `headway/ElasticAllocation-v0`."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment besides traces, cluster, slowdown, profiles and J."""


def trace(seed: int, **workload: Any) -> Trace:
    """Return the trace of that seed."""
    gpus = parse_cluster(CLUSTER).num_gpus
    given: dict[str, Any] = {"jobs": JOBS, "mean_gap_s": GAP_S, "cluster_gpus": gpus, **workload}
    return generate(DL2(seed=seed, **given))


def setting(name: str, says: str, workload: Mapping[str, Any] | None = None, **options: Any) -> ElasticSetting:
    """Return the frozen setting with changes of the workload and of the environment."""
    make_trace: Callable[[int], Trace] = partial(trace, **(workload or {}))
    return ElasticSetting(
        name=name,
        says=says,
        trace=make_trace,
        cluster=parse_cluster(CLUSTER),
        slowdown=(),
        profiles=paper_profiles("dl2-measured"),
        options=options,
    )


MAIN = setting(
    "main", f"{JOBS} jobs, a mean gap of {GAP_S / 60:.0f} min by the hours of a day, {CLUSTER}, measured speeds"
)
ARRIVALS = (
    setting("uniform arrivals", "figure 12: jobs arrive at any time of the span", {"arrivals": "uniform"}),
    setting("poisson arrivals", "figure 12: a Poisson process", {"arrivals": "poisson"}),
)
SPEEDS_VARY = tuple(
    setting(
        f"speeds vary by {share:.0%}".replace("%", " %"),
        f"figure 15: a job is {share:.3g} of its speed faster or slower than its type",
        speed_variation=share,
    )
    for share in (0.1, 0.273, 0.4, 0.5)
)
EPOCHS_OFF = tuple(
    setting(
        f"epochs off by {share:.0%}".replace("%", " %"),
        f"figure 16: a job trains {share:.0%} more or fewer epochs than stated".replace("%", " %"),
        epoch_error=share,
    )
    for share in (0.05, 0.1, 0.15, 0.2)
)
"""Figures 15 and 16; without variation and error they are the main setting."""
OTHERS = (*ARRIVALS, *SPEEDS_VARY, *EPOCHS_OFF)


def run_agent(agent: Agent, own: Mapping[str, Any], where: Setting, seed: int) -> Run:
    """Let an agent with these options of its own act on the trace of a seed. Raises SimulatorError if it leaves jobs."""
    assert isinstance(where, ElasticSetting)
    world = {"cluster": where.cluster, "slowdown": where.slowdown, "profiles": where.profiles}
    found = where.trace(seed)
    env = make(ELASTIC, traces=(found,), **world, **{"concurrent": CONCURRENT, **where.options, **own})
    try:
        play(env, agent, seed, {"trace": found})
        simulation = env.unwrapped.simulation  # type: ignore[attr-defined] # every environment of jobs has one
        return run_of(simulation, f"{where.name}, seed {seed}", None, MEASURES)
    finally:
        env.close()


def acting(text: str, kind: Kind, name: str | None = None, **options: Any) -> Contender:
    """Return an agent, named as for `headway-sim act`, as a contender; the options are more ones of its environment."""

    def run(where: Setting, seed: int, _report: OnProgress | None) -> Run:
        agent = agent_of(text)
        if isinstance(agent, AgentInEnvironment):
            return run_agent(agent.agent, {**agent.options, **options}, where, seed)
        return run_agent(agent, options, where, seed)

    return Contender(name or text, kind, run)
