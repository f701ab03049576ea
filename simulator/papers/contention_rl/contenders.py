"""The contenders of the experiment: agents of both recipes, the paper's baselines, and controls."""

from __future__ import annotations

import numpy as np

from policies.learned.training.agents import UniformAgent
from policies.model import FloatColumn
from simulator.papers.contention_rl.controls import MostReward, Spread
from simulator.papers.contention_rl.env import BRANCHES
from simulator.papers.contention_rl.rounds import InRounds, acting, in_rounds, unguarded
from simulator.reproducing.bound import average_jct_bound_s
from simulator.reproducing.experiment import Contender, Kind, Run, Setting, policy, scheduled
from simulator.results import metrics
from simulator.results.result import Result
from simulator.runs.progress import OnProgress
from simulator.runs.report.steps import means
from simulator.traces.trace import NS_PER_S

GREEDY = "contention-greedy"
GREEDY_BY_GPUS = f"{GREEDY}:order=gpus"
"""The same, with the jobs of the fewest GPUs first."""
BASE, HYBRID, HEADWAY = "rl-base", "rl-hybrid", "headway-rl"
START = f"{HEADWAY}:values=start"
"""Values of the rule that the training of headway-rl begins with."""
SPARING = "rl-hybrid:greedy=one"
"""With a rule that starts one job if the agent starts none, as in the paper's code."""
OTHER_BRANCHES = "ABDE"
"""Branches of the reward's weights; without an option, BASE and HYBRID have the weights of branch C."""
BASELINES = ("srtf", "las")
"""The paper's."""
PAPER_CONTROLS = (
    "srtf:layout=anywhere",
    "las:layout=anywhere",
    "fifo",
    "fewest-gpus",
    GREEDY,
    GREEDY_BY_GPUS,
    "random",
)
"""Contenders beside its baselines, in the paper's own setting."""
UNIFORM, MOST_REWARD, SPREAD = "uniformly random actions", "most reward at once, branch B", "spread"
ROUND_CONTROLS = ("fewest-gpus", "random", SPREAD, UNIFORM, MOST_REWARD, *BASELINES)
"""Contenders without training where all decide in rounds."""
BOUND = "lower bound"
_PARTS = 100
"""Intervals of a run in the picture of utilization."""


def of_paper(policy: str, branch: str) -> str:
    """Return the text of that policy with the weights of the paper's recipe and that branch."""
    return f"{policy}:preset=paper,branch={branch}"


def deciding_in_rounds(*, branches: bool) -> tuple[Contender, ...]:
    """Return the paper's agents, its baselines, the agents that are served by default, and controls, all in rounds."""
    ours = [
        in_rounds(of_paper(name, branch), Kind.OURS, samples if branch == "B" else None)
        for branch in (BRANCHES if branches else "B")
        for name in (BASE, HYBRID)
    ]
    ours += [in_rounds(name, Kind.OURS) for name in (BASE, HYBRID)]
    baselines = [in_rounds(name, Kind.BASELINE, samples) for name in BASELINES]
    controls = [
        *(in_rounds(name, Kind.CONTROL) for name in ("fewest-gpus", "random")),
        scheduled(SPREAD, Kind.CONTROL, lambda: InRounds(Spread()), samples),
        acting(UNIFORM, Kind.CONTROL, UniformAgent, "B"),
        acting(MOST_REWARD, Kind.CONTROL, MostReward, "B"),
    ]
    return (*ours, *baselines, *controls)


def deciding_at_events(*, branches: bool) -> tuple[Contender, ...]:
    """Return the agents of Headway's own recipe, and controls, in the paper's cluster and workload."""
    ours = tuple(policy(unguarded(name), Kind.OURS, samples, name=name) for name in (BASE, HYBRID, SPARING, HEADWAY))
    if branches:
        ours += tuple(
            policy(unguarded(text), Kind.OURS, name=text)
            for text in (f"{name}:branch={branch}" for branch in OTHER_BRANCHES for name in (BASE, HYBRID))
        )
    baselines = tuple(policy(name, Kind.BASELINE, samples) for name in BASELINES)
    controls = tuple(policy(name, Kind.CONTROL) for name in (START, *PAPER_CONTROLS))
    return (*ours, *baselines, *controls, Contender(BOUND, Kind.BOUND, _bound))


def samples(result: Result) -> dict[str, FloatColumn]:
    """Return the samples of figures 5 to 7: JCT, running time (s) and contention sensitivity of jobs, and utilization over time."""
    assert result.spans is not None
    begin = int(result.submit_ns.min())
    width = -(-result.makespan_ns // _PARTS)
    edges = begin + width * np.arange(_PARTS + 1, dtype=np.int64)
    occupied = means(*result.spans.busy(), edges) / float(result.node_gpus.sum())
    return {
        "jct_s": result.jct_ns / NS_PER_S,
        "service_s": result.service_ns / NS_PER_S,
        "sensitivity": metrics.contention_sensitivity(result),
        "utilization": occupied[:-1],
    }


def _bound(setting: Setting, seed: int, _report: OnProgress | None) -> Run:
    return Run({"avg_jct_s": average_jct_bound_s(setting.trace(seed), setting.cluster)})
