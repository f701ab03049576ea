"""SCHED2 (Luan et al.), section IV: figures 7 to 10 and table III, with both readings of what its baselines see.

15 servers of 8 GPUs, 1,000 jobs. The paper does not say how loaded its cluster is, but how long its baselines wait: at a mean gap
of 129 s they wait as long if they choose from the first ten jobs of the queue, as its agent does
(`waits_by_load`). With the whole queue to choose from they wait less; the range of gaps shows both. With `quick`, all runs are
those that are stored (`stored.py`).
"""

from __future__ import annotations

from simulator.errors import SettingError
from simulator.papers.sched2.reproduction import claims
from simulator.papers.sched2.reproduction.contenders import contenders
from simulator.papers.sched2.reproduction.measures import BEHAVIOUR, PERFORMANCE, measures, sensitive
from simulator.papers.sched2.reproduction.settings import (
    CALIBRATED,
    CALIBRATED_GAP_S,
    GAPS_S,
    MIXES,
    OVERLOAD_GAPS_S,
    name_of,
    settings,
)
from simulator.papers.sched2.reproduction.stored import RUNS, STORE
from simulator.reproducing.experiment import (
    Claim,
    Contender,
    Experiment,
    ExperimentResults,
    Metric,
    MoreFigures,
    Setting,
)
from simulator.reproducing.pictures import Picture, lines, over_time
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.slowdown.profiles.papers import paper_profiles

_MORE_TABLES = (MoreFigures(CALIBRATED, "fragmentation (figure 9), locality and waits (table III), reuse", BEHAVIOUR),)


def experiment(profiles: ModelProfiles | None = None, *, quick: bool = False) -> Experiment:
    """Return the experiment; `profiles` replace those that follow from the paper. Raises SettingError."""
    if profiles is not None and quick:
        raise SettingError("the stored runs are those of the paper's models; leave out --quick, or --profiles")
    known = profiles or paper_profiles("sched2")
    measured = measures(known)
    there = [each for each in settings(known) if not quick or each.name in RUNS.read()]
    found = {setting.name: _contenders(setting, measured, quick=quick) for setting in there}
    names = {setting: {each.name for each in of} for setting, of in found.items()}
    return Experiment(
        name="sched2",
        says="SCHED2 (Luan et al., GLOBECOM 2019), section IV",
        settings=tuple(there),
        contenders=found,
        metrics=PERFORMANCE,
        measures=measured,
        more_tables=tuple(table for table in _MORE_TABLES if table.setting in names),
        claims=tuple(claim for claim in _claims() if {claim.ours, *claim.against} <= names.get(claim.setting, set())),
        notes=(
            "The paper does not say whether its baselines choose from the first ten waiting jobs, as its agent does, or from all: "
            "this experiment runs both. Nor does it state its load: at a gap of 129 s, baselines that choose from the first ten "
            "jobs wait as long as in the paper.",
            f"Sensitive: {', '.join(sorted(sensitive(known)))}. Jobs on one GPU are in neither group.",
            "Its growth: from the first to the second half of the time in which jobs arrive.",
            "Agents and rules act without the guard that they have on clusters: as in the paper.",
            *([f"These are stored runs, made by: {STORE}"] if quick else []),
        ),
    )


def _contenders(setting: Setting, measured: dict[str, Metric], *, quick: bool) -> tuple[Contender, ...]:
    anew = contenders(measured, sample=setting.name == CALIBRATED)
    return tuple(RUNS.of(each) for each in anew if RUNS.has(setting.name, each.name)) if quick else anew


def _claims() -> list[Claim]:
    found = claims.at_calibrated_gap(CALIBRATED)
    found += [claim for share in MIXES for claim in claims.of_mix(name_of(CALIBRATED_GAP_S, share), share)]
    found += [
        claim
        for gap in GAPS_S
        if gap != CALIBRATED_GAP_S
        for claim in claims.of_gap(name_of(gap), overload=gap in OVERLOAD_GAPS_S)
    ]
    return found


def pictures(results: ExperimentResults) -> list[Picture]:
    """Return figures 8 and 9. Stored runs have no samples over time, and so no figure 9."""
    there = {setting.name for setting in results.experiment.settings}
    gaps = {gap: name_of(gap) for gap in GAPS_S if name_of(gap) in there}
    by_gap = [
        lines("As figure 8: effectiveness by the mean gap", gaps, "effectiveness", ("gap, s", "effectiveness")),
        lines("Average JCT by the mean gap", gaps, "avg_jct_s", ("gap, s", "hours"), 3600.0),
    ]
    timelines = [
        over_time("As figure 9: fragmentation over time", CALIBRATED, "fragmentation", "hours", "mean over nodes"),
        over_time("As figure 9: GPUs that waiting jobs request", CALIBRATED, "required", "hours", "GPUs"),
    ]
    sampled = any(setting == CALIBRATED and runs[0].samples for (setting, _), runs in results.runs.items())
    return [*(by_gap if len(gaps) > 1 else []), *(timelines if sampled else [])]
