"""Contention-aware scheduling by reinforcement learning (Ryu and Eo), section VI, and gains where they are possible.

**The paper's own setting**: 4 nodes of 8 GPUs, four mixes, 256 jobs of an hour at once, demands of 2, 4 and 8 as in the published
code, slowdown by pairs. Its JCT is running time only; JCT with queueing is given too.

**Link sharing**: demands from 1 to 32, Poisson arrivals at load 0.9, the normal and the heavy mix, on one rack of 4x8 and on two
whose uplinks carry half of what their NICs do.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from policies.model import FloatColumn
from simulator.cluster.cluster import Cluster, cluster_of
from simulator.reproducing.bound import average_jct_bound_s
from simulator.reproducing.experiment import Claim, Contender, Experiment, ExperimentResults, Kind, Run, Setting, policy
from simulator.reproducing.pictures import Picture, cdf, density, scatter, shares
from simulator.results import metrics
from simulator.results.result import Result
from simulator.runs.progress import OnProgress
from simulator.runs.report.steps import means
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.contention_rl import MIXES, ContentionRL, generate
from simulator.traces.trace import NS_PER_S, Trace

JOBS = 256
LOAD = 0.9
NIC_GBS = 12.5
PAPER_DEMANDS = (2, 4, 8)
ALL_DEMANDS = tuple(range(1, 33))
RULED = ("fifo", "fewest-gpus", "srtf", "las", "fifo-skip", "sjf", "srsf")
CONTROLS = (*RULED, *(f"{name}:layout=anywhere" for name in RULED))
"""Baselines that ignore contention."""
GREEDY = "contention-greedy"
BASE, HYBRID, HEADWAY = "rl-base", "rl-hybrid", "headway-rl"
SPARING = "rl-hybrid:greedy=one"
"""With a rule that starts one job if the agent starts none, as in the paper's code."""
OTHER_BRANCHES = "ABDE"
"""Branches of the reward's weights; without an option, BASE and HYBRID have the weights of branch C."""
PAPER_CONTROLS = ("srtf:layout=anywhere", "las:layout=anywhere", "fifo", "fewest-gpus", GREEDY, "random")
"""Contenders beside its baselines, in the paper's own setting."""
PUBLISHED = "normal, as published"
"""The setting in which, as in the published code, jobs on one node slow no other down."""
BOUND = "lower bound"
NORMAL = "normal"
HOUR_S = 3600.0
_PARTS = 100
"""Intervals of a run in the picture of utilization."""
_EDGES = (1.0, 1.1, 1.25, 1.5, 2.0)
"""Edges of the histogram of contention sensitivities."""
_PAPER = {
    (BASE, "avg_service_s", "srtf"): -0.154,
    (BASE, "avg_service_s", "las"): -0.182,
    (BASE, "p90_service_s", "srtf"): -0.164,
    (BASE, "p90_service_s", "las"): -0.207,
    (HYBRID, "avg_service_s", "srtf"): -0.121,
    (HYBRID, "avg_service_s", "las"): -0.151,
    (HYBRID, "p90_service_s", "srtf"): -0.164,
    (HYBRID, "p90_service_s", "las"): -0.207,
}
"""The paper's gains: section VI, "Results"; normal mix, branch B."""
_GAINS = {"one-normal": -0.12, "one-heavy": -0.20, "two-normal": -0.40, "two-heavy": -0.40}
"""Gains to be reached over the best control that ignores contention."""


def cluster(racks: int) -> Cluster:
    """Return a cluster of 4x8 per rack; uplinks are oversubscribed 2:1."""
    nodes = [{"count": 4, "gpus": 8, "rack": f"r{rack}"} for rack in range(racks)]
    network = {"kind": "racks", "nic_gbs": NIC_GBS, "uplink_gbs": 4 * NIC_GBS / 2}
    return cluster_of({"nodes": nodes, "network": network})


def batch(mix: str, seed: int, jobs: int = JOBS) -> Trace:
    """Return a trace of jobs that arrive at once."""
    return generate(ContentionRL(jobs=jobs, seed=seed, mix=mix, demands=PAPER_DEMANDS))


def poisson(racks: int, mix: str, seed: int, jobs: int = JOBS) -> Trace:
    """Return a trace of jobs with Poisson arrivals."""
    workload = ContentionRL(
        jobs=jobs, seed=seed, arrivals="poisson", load=LOAD, cluster_gpus=32 * racks, mix=mix, demands=ALL_DEMANDS
    )
    return generate(workload)


def experiment(profiles: ModelProfiles | None = None, *, quick: bool = False) -> Experiment:
    """Return the experiment; `profiles`, such as the authors' pair table, replace the paper's. `quick`: fewer of all."""
    known = profiles or paper_profiles()
    mixes = (NORMAL,) if quick else tuple(MIXES)
    paper = tuple(_paper_setting(mix, mix, known) for mix in mixes)
    paper += () if quick else (_paper_setting(PUBLISHED, NORMAL, known, "pair-table:single=no"),)
    links = tuple(
        _link_setting(racks, mix, known)
        for racks, mix in ((1, NORMAL), (1, "heavy"), (2, NORMAL), (2, "heavy"))
        if not quick or mix == NORMAL
    )
    controls = ("fifo", "fewest-gpus", "srtf:layout=anywhere", "las:layout=anywhere") if quick else CONTROLS
    return Experiment(
        name="contention-rl",
        says="contention-aware scheduling by reinforcement learning (Ryu and Eo), section VI",
        settings=(*paper, *links),
        contenders={
            **{setting.name: _paper_contenders(branches=not quick) for setting in paper},
            **{setting.name: _link_contenders(controls) for setting in links},
        },
        metrics=("avg_jct_s", "p90_jct_s", "avg_service_s", "utilization", "avg_contention_sensitivity"),
        claims=(
            *_paper_claims(quick=quick),
            *(claim for setting in links for claim in _link_claims(setting.name, controls)),
        ),
        notes=(
            "What the paper calls JCT is running time; it counts no queueing. Both are given.",
            "The lower bound knows no contention: where jobs on one node slow each other down too, no policy comes near it.",
            "In the paper's setting all jobs come at once: most of a JCT with queueing is the order of jobs. Controls that do "
            "ignore contention stand beside the learned policies.",
        ),
    )


def _paper_setting(name: str, mix: str, profiles: ModelProfiles, slowdown: str = "pair-table") -> Setting:
    where = "by pairs" if slowdown == "pair-table" else "by pairs of jobs on several nodes"
    return Setting(
        name=name,
        says=f"{mix} mix, all {JOBS} jobs at once, 2 to 8 GPUs, 4x8, slowdown {where}",
        trace=partial(batch, mix),
        cluster=cluster(1),
        slowdown=(slowdown,),
        profiles=profiles,
    )


def _link_setting(racks: int, mix: str, profiles: ModelProfiles) -> Setting:
    size = "one" if racks == 1 else "two"
    where = "4x8" if racks == 1 else "two racks of 4x8, uplinks 2:1"
    return Setting(
        name=f"{size}-{mix}",
        says=f"{mix} mix, Poisson at load {LOAD}, 1 to 32 GPUs, {where}, link sharing",
        trace=partial(poisson, racks, mix),
        cluster=cluster(racks),
        slowdown=("link-sharing",),
        profiles=profiles,
    )


def _paper_contenders(*, branches: bool) -> tuple[Contender, ...]:
    ours = tuple(policy(name, Kind.OURS, samples) for name in (BASE, HYBRID, SPARING, HEADWAY))
    if branches:
        ours += tuple(
            policy(f"{name}:branch={branch}", Kind.OURS) for branch in OTHER_BRANCHES for name in (BASE, HYBRID)
        )
    baselines = tuple(policy(name, Kind.BASELINE, samples) for name in ("srtf", "las"))
    controls = tuple(policy(name, Kind.CONTROL) for name in PAPER_CONTROLS)
    return (*ours, *baselines, *controls, Contender(BOUND, Kind.BOUND, _bound))


def _link_contenders(controls: tuple[str, ...]) -> tuple[Contender, ...]:
    ours = (policy(HEADWAY, Kind.OURS),)
    return (*ours, policy(GREEDY, Kind.CONTROL), *(policy(name, Kind.CONTROL) for name in controls))


def _bound(setting: Setting, seed: int, _on_progress: OnProgress | None) -> Run:
    return Run({"avg_jct_s": average_jct_bound_s(setting.trace(seed), setting.cluster)})


def _paper_claims(*, quick: bool) -> tuple[Claim, ...]:
    controls = ("srtf", "las", *PAPER_CONTROLS)
    queueing = [
        Claim(
            name=f"{ours}: avg_jct_s against the best control",
            setting=NORMAL,
            metric="avg_jct_s",
            ours=ours,
            against=controls,
            paper=None,
            goal=0.0,
        )
        for ours in (BASE, HYBRID, HEADWAY)
    ]
    return (*_margin_claims(), *queueing, *(() if quick else _bound_claims()))


def _margin_claims() -> list[Claim]:
    """Return the paper's margins over other policies, also for the policies that stand in for its agents."""
    stand_ins = {BASE: (BASE, HEADWAY, "fewest-gpus", GREEDY), HYBRID: (HYBRID, SPARING)}
    return [
        Claim(
            name=f"{ours}: {metric} against {other}",
            setting=NORMAL,
            metric=metric,
            ours=ours,
            against=(other,),
            paper=margin if ours.partition(":")[0] == name else None,
            goal=margin,
        )
        for (name, metric, other), margin in _PAPER.items()
        for ours in stand_ins[name]
    ]


def _bound_claims() -> list[Claim]:
    return [
        Claim(
            name=f"{ours}: avg_jct_s within 1 % of the lower bound, {PUBLISHED}",
            setting=PUBLISHED,
            metric="avg_jct_s",
            ours=ours,
            against=(BOUND,),
            paper=None,
            goal=0.01,
        )
        for ours in (HYBRID, f"{HYBRID}:branch=A", "fewest-gpus")
    ]


def _link_claims(setting: str, controls: tuple[str, ...]) -> tuple[Claim, ...]:
    def claim(ours: str, against: tuple[str, ...], metric: str, goal: float, what: str) -> Claim:
        name = f"{ours}: {metric} against {what}, {setting}"
        return Claim(name=name, setting=setting, metric=metric, ours=ours, against=against, paper=None, goal=goal)

    blind, gain = "the best control that ignores contention", _GAINS[setting]
    return (
        claim(HEADWAY, controls, "avg_jct_s", gain, blind),
        claim(HEADWAY, controls, "p90_jct_s", 0.0, blind),
        claim(HEADWAY, (GREEDY,), "avg_jct_s", -0.02, GREEDY),
        claim(GREEDY, controls, "avg_jct_s", gain, blind),
    )


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


def pictures(results: ExperimentResults) -> list[Picture]:
    """Return figures 5 to 8."""
    mixes = [setting.name for setting in results.experiment.settings if setting.name in MIXES]
    hours = ("share of GPU time in use", "average JCT with queueing, h")
    return [
        cdf("As figure 5: running time (the paper's JCT), normal mix", NORMAL, "service_s", "hours", HOUR_S),
        cdf("JCT with queueing, normal mix", NORMAL, "jct_s", "hours", HOUR_S),
        shares(
            "As figure 6: contention sensitivity of jobs, normal mix", NORMAL, "sensitivity", "ideal / observed", _EDGES
        ),
        density("As figure 7: utilization, normal mix", NORMAL, "utilization", "share of GPUs in use"),
        *(scatter(f"As figure 8: {mix} mix", mix, "utilization", "avg_jct_s", hours, HOUR_S) for mix in mixes),
    ]
