"""Settings of RL-TAPS' experiment, and the figures of an episode.

The paper's reward (equation 4) is shown for all, whatever an agent was trained with. The paper runs its baselines without
preemption, and without the penalty of equation 6, which would not apply to them; so does this experiment.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.learned.rl_taps.cluster import CLUSTER
from policies.learned.training.agents import Agent
from simulator.agents.episodes import Episode, make, play
from simulator.cluster.cluster import cluster_of
from simulator.envs import RL_TAPS
from simulator.papers.rl_taps.options import FULL, THROUGHPUT
from simulator.reproducing.experiment import Metric, Run, Setting
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.rl_taps import RLTaps, generate
from simulator.traces.trace import Trace

SLOWDOWN, COST = "mean_slowdown", "cost"
_LABELS = {
    SLOWDOWN: ("mean slowdown (equation 17)", True),
    "p90_slowdown": ("p90 slowdown", True),
    "reward": ("reward a step (equation 4)", False),
    COST: ("minus the reward of an episode", True),
    "finished": ("jobs finished of 400", False),
    "utilization": ("share of GPUs in use", False),
    "preemptions": ("moves and resumptions", True),
}

SHOWN = (SLOWDOWN, "p90_slowdown", "reward", "finished", "utilization", "preemptions")
MEASURES = {name: Metric(lambda _result: None, says, lower) for name, (says, lower) in _LABELS.items()}
"""Names and directions of the figures. Episodes have no `Result`, so `figures` computes the values."""


@dataclass(frozen=True, kw_only=True)
class TapsSetting(Setting):
    """A setting of agents in `headway/RlTaps-v0`."""

    restart_s: float
    """Seconds that a job loses when it is moved or resumed."""


def trace(seed: int) -> Trace:
    """Return the sequence of that seed: 400 jobs."""
    return generate(RLTaps(seed=seed))


def setting(name: str, restart_s: float) -> TapsSetting:
    """Return the paper's setting with that charge for moves and resumptions."""
    says = (
        f"{restart_s:g} s lost by a job that is moved or resumed"
        if restart_s
        else "moves cost nothing, as in the paper"
    )
    return TapsSetting(
        name=name,
        says=f"400 jobs, one a step, 8 machines of 4 GPUs in 4 racks, Tmax 1000; {says}",
        trace=trace,
        cluster=cluster_of(CLUSTER),
        slowdown=(),
        profiles=paper_profiles("rl-taps"),
        restart_s=restart_s,
    )


CHARGED = setting("stops charged", 10.0)
FREE = setting("stops free", 0.0)


def run_agent(agent: Agent, where: Setting, seed: int, preemption: str = FULL) -> Run:
    """Let an agent act on the sequence of a seed."""
    assert isinstance(where, TapsSetting)
    found = where.trace(seed)
    env = make(
        RL_TAPS,
        traces=(found,),
        cluster=where.cluster,
        profiles=where.profiles,
        restart_s=where.restart_s,
        reward=THROUGHPUT,
        preemption=preemption,
    )
    try:
        return Run(figures(play(env, agent, seed, {"trace": found})))
    finally:
        env.close()


def figures(episode: Episode) -> dict[str, float]:
    """Return the figures of an episode."""
    own = {"reward": episode.total_reward / episode.steps, COST: -episode.total_reward}
    return {name: float(own[name] if name in own else episode.outcome[name]) for name in _LABELS}
