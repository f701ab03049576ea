"""SCHED2 (Luan et al.), section IV: figures 7 to 10 and table III, with both readings of what its baselines see.

15 servers of 8 GPUs, 1,000 jobs. The paper does not say how loaded its cluster is, but how long its baselines wait: at a mean gap
of 129 s they wait as long if they choose from the first ten jobs of the queue, as its agent does
(`waits_by_load`). With the whole queue to choose from they wait less; the range of gaps shows both.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from policies.model import FloatColumn
from simulator.cluster.cluster import parse_cluster
from simulator.papers.sched2 import localities
from simulator.papers.sched2.baselines import BASELINES, CONTROLS, Baseline
from simulator.papers.sched2.bounds import bound
from simulator.reproducing.experiment import (
    METRICS,
    Claim,
    Contender,
    Experiment,
    ExperimentResults,
    Kind,
    Metric,
    Run,
    Setting,
    policy,
    run_of,
)
from simulator.reproducing.pictures import Picture, lines, over_time
from simulator.results import metrics
from simulator.results.fragmentation import Fragmentation
from simulator.results.result import Result
from simulator.runs.progress import OnProgress
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.sched2 import MODELS, Sched2, generate
from simulator.traces.trace import NS_PER_S, Trace

OURS = "sched2-rule"
"""The rule that a search has found. It chooses from the first ten jobs, as the paper's agent does."""
WIDEST = "sched2-rule:window=widest"
"""The same rule, with ten jobs from the whole queue as input."""
PAPERS = "sched2"
"""The paper's agent."""
START = "sched2-rule:rule=start"
"""The rule that the search begins with."""
AGENTS = {"first ten": OURS, "whole queue": WIDEST}
CALIBRATED_GAP_S = 129.0
"""The mean gap at which baselines that see the first ten jobs wait as long as in the paper."""
OVERLOAD_GAP_S = 112.0
"""The mean gap of a load of 1.2, by the ideal times of jobs."""
GAPS_S = (103.0, OVERLOAD_GAP_S, 122.0, CALIBRATED_GAP_S, 149.0, 172.0, 224.0)
"""Mean gaps of loads from 1.3 down to 0.6."""
WINDOW = 10
READINGS = {"first ten": WINDOW, "whole queue": 0}
OTHERS = ("fewest-gpus", "srtf", "fifo-skip", "random")
"""Controls that do not know how fast a job is on several nodes; they place it by best fit."""
_SENSITIVE_BELOW = 0.5
"""Speed on two nodes relative to one, below which a model is sensitive to locality. The paper does not give its limit."""
_PARTS = 150
_PAPER = {"avg_jct_s": 4.6, "effectiveness": 1.6, "makespan_s": 2.1}
"""The factors of section IV-B, over the best of the paper's baselines."""
_FIRST_TEN = {"avg_jct_s": 3.0, "effectiveness": 2.2, "makespan_s": 1.5}
_WHOLE_QUEUE = {"avg_jct_s": 1.4, "effectiveness": 1.1, "makespan_s": 1.4}


def sensitive(profiles: ModelProfiles) -> frozenset[str]:
    """Return the models that lose more than half of their speed on two nodes."""
    slow = (name for name in MODELS if (curve := profiles.models[name].locality) and curve[2] < _SENSITIVE_BELOW)
    return frozenset(slow)


def measures(profiles: ModelProfiles) -> dict[str, Metric]:
    """Return the metrics of every experiment, and those of table III."""
    quick = sensitive(profiles)
    slow = frozenset(MODELS) - quick
    return {
        **METRICS,
        "fragmentation": Metric(metrics.fragmentation, "fragmentation (equation 1)"),
        "relaxed_sensitive": Metric(lambda run: localities.relaxed(run, quick), "sensitive jobs without best locality"),
        "relaxed_insensitive": Metric(lambda run: localities.relaxed(run, slow), "insensitive jobs without it"),
        "wait_sensitive_s": Metric(lambda run: localities.wait_s(run, quick), "wait of sensitive jobs"),
        "wait_insensitive_s": Metric(lambda run: localities.wait_s(run, slow), "wait of insensitive jobs"),
        "reused": Metric(localities.reused, "locality reused", lower=False),
    }


def trace(gap_s: float, one_gpu_share: float, seed: int) -> Trace:
    """Return a trace of 1,000 jobs."""
    return generate(Sched2(seed=seed, mean_gap_s=gap_s, one_gpu_share=one_gpu_share))


def experiment(profiles: ModelProfiles | None = None, *, quick: bool = False) -> Experiment:
    """Return the experiment; with `quick`, only the calibrated gap."""
    known = profiles or paper_profiles("sched2")
    gaps = (CALIBRATED_GAP_S,) if quick else GAPS_S
    settings = [_setting(gap, 0.68, known) for gap in gaps]
    settings += [] if quick else [_setting(CALIBRATED_GAP_S, share, known) for share in (0.60, 0.75)]
    measured = measures(known)
    calibrated = name_of(CALIBRATED_GAP_S)
    return Experiment(
        name="sched2",
        says="SCHED2 (Luan et al., GLOBECOM 2019), section IV",
        settings=tuple(settings),
        contenders={
            setting.name: _contenders(measured, record=setting.name == calibrated, quick=quick) for setting in settings
        },
        metrics=("avg_jct_s", "effectiveness", "makespan_s", "avg_wait_s", "avg_service_s", "fragmentation"),
        measures=measured,
        claims=_claims(quick=quick),
        notes=(
            "The paper does not say whether its baselines choose from the first ten waiting jobs, as its agent does, or from all: "
            "this experiment runs both. Nor does it state its load: at a gap of 129 s, baselines that choose from the first ten "
            "jobs wait as long as in the paper.",
            f"Sensitive: {', '.join(sorted(sensitive(known)))}. Jobs on one GPU are in neither group.",
        ),
    )


def name_of(gap_s: float, one_gpu_share: float = 0.68) -> str:
    """Return the name of a setting."""
    return f"gap {gap_s:g} s" if one_gpu_share == 0.68 else f"gap {gap_s:g} s, {one_gpu_share:.0%} on one GPU"


def _setting(gap_s: float, one_gpu_share: float, profiles: ModelProfiles) -> Setting:
    return Setting(
        name=name_of(gap_s, one_gpu_share),
        says=f"1,000 jobs on 15x8, {one_gpu_share:.0%} on one GPU, a mean gap of {gap_s:g} s, slowdown by locality",
        trace=partial(trace, gap_s, one_gpu_share),
        cluster=parse_cluster("15x8"),
        slowdown=("locality",),
        profiles=profiles,
    )


def _contenders(measured: dict[str, Metric], *, record: bool, quick: bool) -> tuple[Contender, ...]:
    sampler = samples if record else None
    named = (PAPERS, *AGENTS.values(), START)
    ours = tuple(policy(name, Kind.OURS, sampler, measures=measured) for name in named)
    rules = [
        _rule(name, Kind.BASELINE if name in BASELINES else Kind.CONTROL, reading, measured, record=record)
        for name in (*BASELINES, *CONTROLS)
        for reading in READINGS
        if name != "fifo" or reading == "whole queue"
    ]
    others = () if quick else tuple(policy(name, Kind.CONTROL, measures=measured) for name in OTHERS)
    return (*ours, *rules, *others, bound())


def _rule(name: str, kind: Kind, reading: str, measured: dict[str, Metric], *, record: bool) -> Contender:
    def run(setting: Setting, seed: int, _on_progress: OnProgress | None) -> Run:
        models = build(setting.slowdown, topology=setting.cluster.topology, profiles=setting.profiles)
        rule = Baseline(name, setting.trace(seed), setting.cluster, models, READINGS[reading], record=record)
        what = f"{name} in {setting.name}, seed {seed}"
        return run_of(rule.run(), what, samples if record else None, measured)

    return Contender(_rule_name(name, reading), kind, run)


def _rule_name(name: str, reading: str) -> str:
    return "fifo" if name == "fifo" else f"{name}, {reading}"


def _claims(*, quick: bool) -> tuple[Claim, ...]:
    calibrated, over = name_of(CALIBRATED_GAP_S), name_of(OVERLOAD_GAP_S)
    claims = [
        _factor(calibrated, "first ten", metric, goal, ours)
        for ours in (OURS, PAPERS)
        for metric, goal in _FIRST_TEN.items()
    ]
    claims += [_factor(calibrated, "first ten", "avg_jct_s", _FIRST_TEN["avg_jct_s"], "spf-local, first ten")]
    claims += [_control(calibrated, "first ten")]
    if not quick:
        claims += [_factor(over, "whole queue", metric, goal, WIDEST) for metric, goal in _WHOLE_QUEUE.items()]
        claims += [_control(over, "whole queue")]
    return tuple(claims)


def _factor(setting: str, reading: str, metric: str, goal: float, ours: str) -> Claim:
    return Claim(
        name=f"{ours}: times as good as the best baseline by {metric}, {reading}, {setting}",
        setting=setting,
        metric=metric,
        ours=ours,
        against=tuple(_rule_name(name, reading) for name in BASELINES),
        paper=_PAPER[metric] if ours in (*AGENTS.values(), PAPERS) else None,
        goal=goal,
        factor=True,
    )


def _control(setting: str, reading: str) -> Claim:
    return Claim(
        name=f"{AGENTS[reading]}: avg_jct_s against the controls that consider locality, {reading}, {setting}",
        setting=setting,
        metric="avg_jct_s",
        ours=AGENTS[reading],
        against=tuple(_rule_name(name, reading) for name in CONTROLS),
        paper=None,
        goal=-0.03,
    )


def samples(result: Result) -> dict[str, FloatColumn]:
    """Return the data of figure 9: fragmentation, and the GPUs that waiting jobs request, over time (in hours)."""
    assert result.spans is not None
    begin = int(result.submit_ns.min())
    end = begin + result.makespan_ns
    at = np.linspace(begin, end, _PARTS + 1).round().astype(np.int64)[1:]
    # No job is stopped in this experiment: a job that was submitted and has not started is waiting.
    came, started = (_requested_gpus(times, result, at) for times in (result.submit_ns, result.first_start_ns))
    return {
        "hours": (at - begin) / NS_PER_S / 3600,
        "fragmentation": Fragmentation.of(result.spans, result.node_gpus, begin, end, _PARTS).bins,
        "required": came - started,
    }


def _requested_gpus(times: np.ndarray, result: Result, at: np.ndarray) -> FloatColumn:
    order = np.argsort(times, kind="stable")
    summed = np.concatenate(([0.0], np.cumsum(result.num_gpus[order].astype(np.float64))))
    found: FloatColumn = summed[np.searchsorted(times[order], at, side="right")]
    return found


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
