"""Settings of SCHED2's experiment: 15 servers of 8 GPUs and 1,000 jobs, at several mean gaps, with several shares of small jobs."""

from __future__ import annotations

from functools import partial

from simulator.cluster.cluster import parse_cluster
from simulator.reproducing.experiment import Setting
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.traces.generators.sched2 import Sched2, generate
from simulator.traces.trace import Trace

CALIBRATED_GAP_S = 129.0
"""The mean gap at which baselines that see the first ten jobs wait as long as in the paper."""
OVERLOAD_GAPS_S = (103.0, 112.0, 122.0)
"""Mean gaps of loads of 1.3, 1.2 and 1.1, by the ideal times of jobs."""
GAPS_S = (*OVERLOAD_GAPS_S, CALIBRATED_GAP_S, 149.0, 172.0, 224.0)
"""Mean gaps of loads from 1.3 down to 0.6."""
_REALISTIC = 0.68
MIXES = (0.60, 0.75)
"""Shares of jobs on one GPU, besides that of the paper's own trace."""


def name_of(gap_s: float, one_gpu_share: float = _REALISTIC) -> str:
    """Return the name of a setting."""
    return f"gap {gap_s:g} s" if one_gpu_share == _REALISTIC else f"gap {gap_s:g} s, {one_gpu_share:.0%} on one GPU"


CALIBRATED = name_of(CALIBRATED_GAP_S)
"""Name of the setting with the calibrated gap and the paper's own mix."""


def settings(profiles: ModelProfiles) -> tuple[Setting, ...]:
    """Return all settings: those of the gaps, then those of the other mixes at the calibrated gap."""
    gaps = [_setting(gap, _REALISTIC, profiles) for gap in GAPS_S]
    return (*gaps, *(_setting(CALIBRATED_GAP_S, share, profiles) for share in MIXES))


def trace(gap_s: float, one_gpu_share: float, seed: int) -> Trace:
    """Return a trace of 1,000 jobs."""
    return generate(Sched2(seed=seed, mean_gap_s=gap_s, one_gpu_share=one_gpu_share))


def _setting(gap_s: float, one_gpu_share: float, profiles: ModelProfiles) -> Setting:
    return Setting(
        name=name_of(gap_s, one_gpu_share),
        says=f"1,000 jobs on 15x8, {one_gpu_share:.0%} on one GPU, a mean gap of {gap_s:g} s, slowdown by locality",
        trace=partial(trace, gap_s, one_gpu_share),
        cluster=parse_cluster("15x8"),
        slowdown=("locality",),
        profiles=profiles,
    )
