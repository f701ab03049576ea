"""Contenders of RL-TAPS' experiment."""

from __future__ import annotations

from policies.learned.rl_taps.system import ALONE, NAME, REINFORCED, is_shipped, shipped_agent
from simulator.agents.named import agent_of
from simulator.cluster.topology.gpu_links import gpu_links
from simulator.papers.rl_taps.bound import mean_slowdown_bound
from simulator.papers.rl_taps.jobs import jobs_of
from simulator.papers.rl_taps.options import FULL, NEVER, RlTapsOptions
from simulator.papers.rl_taps.reproduction.settings import SLOWDOWN, run_agent
from simulator.reproducing.experiment import Contender, Kind, Run, Setting
from simulator.runs.progress import OnProgress

OURS = NAME
"""The agent that comes with Headway: it imitated the rule of blocks."""
AGENTS = tuple(name for name in (OURS, REINFORCED, ALONE) if is_shipped(name))
"""Agents whose weights come with Headway; rows and claims of others appear when theirs do."""
RANDOM, SJF, TETRIS = "taps-random", "taps-sjf", "taps-tetris"
BASELINES = (RANDOM, SJF, TETRIS)
BEST_FIT, GREEDY, UNIFORM = "taps-best-fit", "taps-greedy", "uniform"
CONTROLS = (BEST_FIT, GREEDY, UNIFORM)
"""Controls that know the topology, and uniformly random actions."""
ONE_EACH, BLOCKS = "taps-one-each", "taps-blocks"
"""Rules that see no more than the agent does; it imitates the second."""
BOUND = "lower bound"


def contenders() -> tuple[Contender, ...]:
    """Return all contenders of a setting."""
    rules = [_rule(name, Kind.BASELINE, NEVER) for name in BASELINES]
    rules += [_rule(name, Kind.CONTROL, FULL) for name in (*CONTROLS, ONE_EACH, BLOCKS)]
    return (*(_trained(name) for name in AGENTS), *rules, Contender(BOUND, Kind.BOUND, _bound))


def _rule(name: str, kind: Kind, preemption: str) -> Contender:
    def run(where: Setting, seed: int, _report: OnProgress | None) -> Run:
        agent = agent_of(name)
        assert not hasattr(agent, "env"), "rules bring no environment"
        return run_agent(agent, where, seed, preemption)

    return Contender(name, kind, run)


def _trained(name: str) -> Contender:
    def run(where: Setting, seed: int, _report: OnProgress | None) -> Run:
        return run_agent(shipped_agent(name).agent, where, seed)

    return Contender(name, Kind.OURS, run)


def _bound(where: Setting, seed: int, _report: OnProgress | None) -> Run:
    options = RlTapsOptions(cluster=where.cluster, profiles=where.profiles)
    jobs = jobs_of(where.trace(seed), options)
    return Run({SLOWDOWN: mean_slowdown_bound(jobs, gpu_links(where.cluster.topology), options)})
