"""Contention-aware scheduling by reinforcement learning (Ryu and Eo), section VI.

**The paper's own agent** (the preset `paper`): the setting below, and every policy decides at the beginning of a round of 300 s.

**The paper's own setting**: 4 nodes of 8 GPUs, four mixes, 256 jobs of an hour at once, demands of 2, 4 and 8 as in the published
code, slowdown by pairs. Its JCT is running time only; JCT with queueing is given too.

Where jobs share links: `papers/headway_rl`.
"""

from __future__ import annotations

from functools import partial

from simulator.cluster.cluster import Cluster, cluster_of
from simulator.papers.contention_rl import claims, contenders
from simulator.papers.contention_rl.rounds import ROUND_S
from simulator.reproducing.experiment import Experiment, ExperimentResults, Setting
from simulator.reproducing.pictures import Picture, cdf, density, scatter, shares
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.contention_rl import MIXES, ContentionRL, generate
from simulator.traces.trace import Trace

JOBS = 256
LOAD = 0.9
NIC_GBS = 12.5
PAPER_DEMANDS = (2, 4, 8)
ALL_DEMANDS = tuple(range(1, 33))
PUBLISHED = "normal, as published"
"""The setting in which, as in the published code, jobs on one node slow no other down."""
NORMAL = "normal"
HOUR_S = 3600.0
_EDGES = (1.0, 1.1, 1.25, 1.5, 2.0)
"""Edges of the histogram of contention sensitivities."""


def cluster(racks: int) -> Cluster:
    """Return a cluster of 4x8 per rack; uplinks are oversubscribed 2:1."""
    nodes = [{"count": 4, "gpus": 8, "rack": f"r{rack}"} for rack in range(racks)]
    network = {"kind": "racks", "nic_gbs": NIC_GBS, "uplink_gbs": 4 * NIC_GBS / 2}
    return cluster_of({"nodes": nodes, "network": network})


def batch(mix: str, seed: int, jobs: int = JOBS) -> Trace:
    """Return a trace of jobs that arrive at once."""
    return generate(ContentionRL(jobs=jobs, seed=seed, mix=mix, demands=PAPER_DEMANDS))


def in_rounds(mix: str) -> str:
    """Return the name of the setting of that mix in which all decide in rounds."""
    return f"{mix}, in rounds"


def experiment(profiles: ModelProfiles | None = None, *, quick: bool = False) -> Experiment:
    """Return the experiment; `profiles`, such as the authors' pair table, replace the paper's. `quick`: fewer of all."""
    known = profiles or paper_profiles()
    mixes = (NORMAL,) if quick else tuple(MIXES)
    rounds = tuple(_paper_setting(in_rounds(mix), mix, known, when=f", decisions every {ROUND_S:g} s") for mix in mixes)
    paper = tuple(_paper_setting(mix, mix, known) for mix in mixes)
    paper += () if quick else (_paper_setting(PUBLISHED, NORMAL, known, "pair-table:single=no"),)
    return Experiment(
        name="contention-rl",
        says="contention-aware scheduling by reinforcement learning (Ryu and Eo), section VI",
        settings=(*rounds, *paper),
        contenders={
            **{setting.name: contenders.deciding_in_rounds(branches=not quick) for setting in rounds},
            **{setting.name: contenders.deciding_at_events(branches=not quick) for setting in paper},
        },
        metrics=(
            "avg_jct_s",
            "p90_jct_s",
            "avg_service_s",
            "p90_service_s",
            "utilization",
            "avg_contention_sensitivity",
        ),
        claims=(
            *claims.in_rounds(tuple(setting.name for setting in rounds)),
            *claims.at_events(NORMAL, branches=not quick),
            *(() if quick else claims.near_the_bound(PUBLISHED)),
        ),
        notes=(
            "What the paper calls JCT is running time; it counts no queueing. Both are given.",
            "Its figures are of branch B; preset=paper has its state, network and rounds, the other agents are Headway's own.",
            "The lower bound knows no contention: where jobs on one node slow each other down too, no policy comes near it.",
            "In the paper's setting all jobs come at once: most of a JCT with queueing is the order of jobs. Controls that do "
            "ignore contention stand beside the learned policies.",
        ),
    )


def _paper_setting(
    name: str, mix: str, profiles: ModelProfiles, slowdown: str = "pair-table", when: str = ""
) -> Setting:
    where = "by pairs" if slowdown == "pair-table" else "by pairs of jobs on several nodes"
    return Setting(
        name=name,
        says=f"{mix} mix, all {JOBS} jobs at once, 2 to 8 GPUs, 4x8, slowdown {where}{when}",
        trace=partial(batch, mix),
        cluster=cluster(1),
        slowdown=(slowdown,),
        profiles=profiles,
    )


def pictures(results: ExperimentResults) -> list[Picture]:
    """Return figures 5 to 8: of the paper's agent, and of Headway's own."""
    there = [setting.name for setting in results.experiment.settings]
    hours = ("share of GPU time in use", "average JCT with queueing, h")
    found: list[Picture] = []
    for normal in (name for name in (in_rounds(NORMAL), NORMAL) if name in there):
        found += [
            cdf(f"As figure 5: running time (the paper's JCT), {normal}", normal, "service_s", "hours", HOUR_S),
            cdf(f"JCT with queueing, {normal}", normal, "jct_s", "hours", HOUR_S),
            shares(
                f"As figure 6: contention sensitivity of jobs, {normal}",
                normal,
                "sensitivity",
                "ideal / observed",
                _EDGES,
            ),
            density(f"As figure 7: utilization, {normal}", normal, "utilization", "share of GPUs in use"),
        ]
    running = (hours[0], "average running time (the paper's JCT), h")
    for mix in MIXES:
        if in_rounds(mix) in there:
            name = in_rounds(mix)
            found.append(scatter(f"As figure 8: {name}", name, "utilization", "avg_service_s", running, HOUR_S))
        if mix in there:
            found.append(scatter(f"As figure 8, with queueing: {mix}", mix, "utilization", "avg_jct_s", hours, HOUR_S))
    return found
