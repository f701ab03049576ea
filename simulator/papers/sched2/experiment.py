"""SCHED2 (Luan et al.), section IV: figures 7 to 10 and table III, with both readings of what its baselines see.

15 servers of 8 GPUs, 1,000 jobs. The paper does not say how loaded its cluster is, but how long its baselines wait: at a mean gap
of 129 s they wait as long if they choose from the first ten jobs of the queue, as its agent does
(`waits_by_load`). With the whole queue to choose from they wait less; the range of gaps shows both.
"""

from __future__ import annotations

from functools import partial

from simulator.cluster.cluster import parse_cluster
from simulator.papers.sched2 import claims
from simulator.papers.sched2.contenders import AGENTS, OURS, READINGS, contenders
from simulator.papers.sched2.measures import BEHAVIOUR, PERFORMANCE, measures, sensitive
from simulator.reproducing.experiment import Claim, Experiment, ExperimentResults, MoreFigures, Setting
from simulator.reproducing.pictures import Picture, lines, over_time
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.sched2 import Sched2, generate
from simulator.traces.trace import Trace

__all__ = [
    "AGENTS",
    "CALIBRATED_GAP_S",
    "GAPS_S",
    "MIXES",
    "OURS",
    "READINGS",
    "experiment",
    "measures",
    "name_of",
    "pictures",
    "trace",
]

CALIBRATED_GAP_S = 129.0
"""The mean gap at which baselines that see the first ten jobs wait as long as in the paper."""
OVERLOAD_GAPS_S = (103.0, 112.0, 122.0)
"""Mean gaps of loads of 1.3, 1.2 and 1.1, by the ideal times of jobs."""
GAPS_S = (*OVERLOAD_GAPS_S, CALIBRATED_GAP_S, 149.0, 172.0, 224.0)
"""Mean gaps of loads from 1.3 down to 0.6."""
_REALISTIC = 0.68
MIXES = (0.60, 0.75)
"""Shares of jobs on one GPU, besides that of the paper's own trace."""


def trace(gap_s: float, one_gpu_share: float, seed: int) -> Trace:
    """Return a trace of 1,000 jobs."""
    return generate(Sched2(seed=seed, mean_gap_s=gap_s, one_gpu_share=one_gpu_share))


def experiment(profiles: ModelProfiles | None = None, *, quick: bool = False) -> Experiment:
    """Return the experiment; with `quick`, only the calibrated gap."""
    known = profiles or paper_profiles("sched2")
    measured = measures(known)
    calibrated = name_of(CALIBRATED_GAP_S)
    settings = [_setting(gap, _REALISTIC, known) for gap in ((CALIBRATED_GAP_S,) if quick else GAPS_S)]
    settings += [] if quick else [_setting(CALIBRATED_GAP_S, share, known) for share in MIXES]
    return Experiment(
        name="sched2",
        says="SCHED2 (Luan et al., GLOBECOM 2019), section IV",
        settings=tuple(settings),
        contenders={setting.name: contenders(measured, sample=setting.name == calibrated) for setting in settings},
        metrics=PERFORMANCE,
        measures=measured,
        more_tables=(
            MoreFigures(calibrated, "fragmentation (figure 9), locality and waits (table III), reuse", BEHAVIOUR),
        ),
        claims=_claims(quick=quick),
        notes=(
            "The paper does not say whether its baselines choose from the first ten waiting jobs, as its agent does, or from all: "
            "this experiment runs both. Nor does it state its load: at a gap of 129 s, baselines that choose from the first ten "
            "jobs wait as long as in the paper.",
            f"Sensitive: {', '.join(sorted(sensitive(known)))}. Jobs on one GPU are in neither group.",
            "Its growth: from the first to the second half of the time in which jobs arrive.",
        ),
    )


def name_of(gap_s: float, one_gpu_share: float = _REALISTIC) -> str:
    """Return the name of a setting."""
    return f"gap {gap_s:g} s" if one_gpu_share == _REALISTIC else f"gap {gap_s:g} s, {one_gpu_share:.0%} on one GPU"


def _setting(gap_s: float, one_gpu_share: float, profiles: ModelProfiles) -> Setting:
    return Setting(
        name=name_of(gap_s, one_gpu_share),
        says=f"1,000 jobs on 15x8, {one_gpu_share:.0%} on one GPU, a mean gap of {gap_s:g} s, slowdown by locality",
        trace=partial(trace, gap_s, one_gpu_share),
        cluster=parse_cluster("15x8"),
        slowdown=("locality",),
        profiles=profiles,
    )


def _claims(*, quick: bool) -> tuple[Claim, ...]:
    found = claims.at_calibrated_gap(name_of(CALIBRATED_GAP_S))
    if not quick:
        found += [claim for share in MIXES for claim in claims.of_mix(name_of(CALIBRATED_GAP_S, share), share)]
        found += [
            claim
            for gap in GAPS_S
            if gap != CALIBRATED_GAP_S
            for claim in claims.of_gap(name_of(gap), overload=gap in OVERLOAD_GAPS_S)
        ]
    return tuple(found)


def pictures(results: ExperimentResults) -> list[Picture]:
    """Return figures 8 and 9."""
    there = {setting.name for setting in results.experiment.settings}
    gaps = {gap: name_of(gap) for gap in GAPS_S if name_of(gap) in there}
    calibrated = name_of(CALIBRATED_GAP_S)
    by_gap = [
        lines("As figure 8: effectiveness by the mean gap", gaps, "effectiveness", ("gap, s", "effectiveness")),
        lines("Average JCT by the mean gap", gaps, "avg_jct_s", ("gap, s", "hours"), 3600.0),
    ]
    timelines = [
        over_time("As figure 9: fragmentation over time", calibrated, "fragmentation", "hours", "mean over nodes"),
        over_time("As figure 9: GPUs that waiting jobs request", calibrated, "required", "hours", "GPUs"),
    ]
    return [*(by_gap if len(gaps) > 1 else []), *(timelines if calibrated in there else [])]
