"""headway-rl and contention-greedy beside policies that ignore contention, where jobs share links.

256 jobs of the models of contention RL, demands 1 to 32, Poisson arrivals at load 0.9, the normal and the heavy mix, on one rack
of 4x8 and on two whose uplinks carry half of what their NICs do. Three more settings are unlike those of training. JCT counts
queueing, and every stop is charged.
"""

from __future__ import annotations

from functools import partial

from simulator.papers.contention_rl.experiment import ALL_DEMANDS, JOBS, LOAD, NORMAL, cluster
from simulator.papers.headway_rl.claims import claims
from simulator.papers.headway_rl.contenders import CONTROLS, QUICK_CONTROLS, contenders
from simulator.reproducing.experiment import Experiment, ExperimentResults, Setting
from simulator.reproducing.pictures import Picture, scatter
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.contention_rl import ContentionRL, generate
from simulator.traces.trace import Trace

SMALL_DEMANDS = (2, 4, 8)
POWERS = (1, 2, 4, 8, 16, 32)


def poisson(racks: int, mix: str, demands: tuple[int, ...], seed: int, jobs: int = JOBS) -> Trace:
    """Return a trace of jobs with Poisson arrivals."""
    workload = ContentionRL(
        jobs=jobs, seed=seed, arrivals="poisson", load=LOAD, cluster_gpus=32 * racks, mix=mix, demands=demands
    )
    return generate(workload)


def at_once(seed: int) -> Trace:
    """Return a trace of small jobs that arrive at once."""
    return generate(ContentionRL(jobs=JOBS, seed=seed, mix=NORMAL, demands=SMALL_DEMANDS))


def experiment(profiles: ModelProfiles | None = None, *, quick: bool = False) -> Experiment:
    """Return the experiment; with `quick`, the normal mix alone, with fewer controls."""
    known = profiles or paper_profiles()
    trained = tuple(
        _setting(racks, mix, known)
        for racks, mix in ((1, NORMAL), (1, "heavy"), (2, NORMAL), (2, "heavy"))
        if not quick or mix == NORMAL
    )
    others = () if quick else _others(known)
    controls = QUICK_CONTROLS if quick else CONTROLS
    return Experiment(
        name="headway-rl",
        says="headway-rl, Headway's own, where jobs share links",
        settings=(*trained, *others),
        contenders={setting.name: contenders(controls) for setting in (*trained, *others)},
        metrics=("avg_jct_s", "p90_jct_s", "avg_service_s", "utilization", "avg_contention_sensitivity"),
        claims=tuple(claim for setting in (*trained, *others) for claim in claims(setting.name, controls)),
        notes=(
            "Controls ignore contention; srtf, srsf and las stop jobs, as headway-rl does.",
            "values=start is the rule that training began with; the other variants each leave one part out.",
        ),
    )


def _setting(racks: int, mix: str, profiles: ModelProfiles) -> Setting:
    size = {1: "one", 2: "two", 4: "four"}[racks]
    where = "4x8" if racks == 1 else f"{size} racks of 4x8, uplinks 2:1"
    return Setting(
        name=f"{size}-{mix}",
        says=f"{mix} mix, Poisson at load {LOAD}, 1 to 32 GPUs, {where}, link sharing",
        trace=partial(poisson, racks, mix, ALL_DEMANDS),
        cluster=cluster(racks),
        slowdown=("link-sharing",),
        profiles=profiles,
    )


def _others(profiles: ModelProfiles) -> tuple[Setting, ...]:
    """Return settings that are unlike those of training."""
    powers = Setting(
        name="powers",
        says=f"normal mix, Poisson at load {LOAD}, 1, 2, 4, ... 32 GPUs, 4x8, link sharing",
        trace=partial(poisson, 1, NORMAL, POWERS),
        cluster=cluster(1),
        slowdown=("link-sharing",),
        profiles=profiles,
    )
    small = Setting(
        name="small-at-once",
        says=f"normal mix, all {JOBS} jobs at once, 2, 4 or 8 GPUs, 4x8, link sharing",
        trace=at_once,
        cluster=cluster(1),
        slowdown=("link-sharing",),
        profiles=profiles,
    )
    return powers, small, _setting(4, NORMAL, profiles)


def pictures(results: ExperimentResults) -> list[Picture]:
    """Return average JCT over utilization, a picture for each setting."""
    labels = ("share of GPU time in use", "average JCT with queueing, h")
    return [
        scatter(
            f"Average JCT and utilization, {setting.name}", setting.name, "utilization", "avg_jct_s", labels, 3600.0
        )
        for setting in results.experiment.settings
    ]
