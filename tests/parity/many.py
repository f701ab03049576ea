"""Plays many cases on both clusters, and judges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from slurm.prerequisites import missing
from tests.parity.case import Case
from tests.parity.cases import SUBJECTS
from tests.parity.judge.rules import judge
from tests.parity.judge.verdict import Judgement, Verdict
from tests.parity.outcome import CaseOutcome
from tests.parity.play.side import Side, booted
from tests.parity.report.record import Outcomes
from tests.parity.report.result import Result
from tests.parity.world import WORLDS, World

Says = Callable[[str], None]


def play_all(
    cases: Sequence[Case],
    policy: str,
    says: Says,
    lots: int | None = None,
    kept: Outcomes | None = None,
    worlds: Mapping[str, World] = WORLDS,
    release: str = "",
) -> list[Result]:
    """Play the cases on both clusters. Return the results by subject, with those of cases that are only in `kept`.

    `release`: of Slurm, to which some of the documented limits are bound.
    """
    no_accounting = "; ".join(missing(accounting=True))
    found = dict(kept or {})
    for name, world in worlds.items():
        here = [case for case in cases if case.world == name and not (case.accounting and no_accounting)]
        if here:
            says(f"cluster {name}: {len(here)} cases")
            found |= _play_on(name, world, here, policy, says, lots, release, accounting=not no_accounting)
    wanted = {case.name for case in cases} | found.keys()
    return [
        _result(subject, case, found.get(case.name), no_accounting, release)
        for subject, theirs in SUBJECTS.items()
        for case in theirs
        if case.name in wanted
    ]


def _result(
    subject: str, case: Case, found: tuple[CaseOutcome, CaseOutcome] | None, reason: str, release: str
) -> Result:
    if found is None:
        return Result(subject, case, Judgement(Verdict.SKIPPED, reason=reason))
    return Result(subject, case, judge(case, *found, release), *found)


def _play_on(
    name: str,
    world: World,
    cases: Sequence[Case],
    policy: str,
    says: Says,
    lots: int | None,
    release: str,
    *,
    accounting: bool,
) -> Outcomes:
    """Return both outcomes of each case. A case that is worse is played once more on both clusters, with fewer beside it."""
    with booted(name, world, headway=False, accounting=accounting) as alone:
        says("Slurm alone")
        before = alone.play(cases, lots)
        with booted(name, world, headway=True, accounting=accounting, policy=policy) as headway:
            says("under Headway")
            after = headway.play(cases, lots)
            again = [
                case
                for case in cases
                if judge(case, before[case.name], after[case.name], release).verdict is Verdict.WORSE
            ]
            says(f"once more: {len(again)} cases that are worse")
            _play_again(again, alone, headway, before, after, release)
    return {case.name: (before[case.name], after[case.name]) for case in cases}


def _play_again(
    cases: Sequence[Case],
    alone: Side,
    headway: Side,
    before: dict[str, CaseOutcome],
    after: dict[str, CaseOutcome],
    release: str,
) -> None:
    """Play cases once more, and replace the outcomes of those that are not worse this time."""
    if not cases:
        return
    lots = max(1, alone.world.lots // 2)
    second_before, second_after = alone.play(cases, lots), headway.play(cases, lots)
    for case in cases:
        name = case.name
        if judge(case, second_before[name], second_after[name], release).verdict is not Verdict.WORSE:
            before[name], after[name] = second_before[name], replace(second_after[name], second_try=True)
