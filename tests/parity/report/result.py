"""Results of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.parity.case import Case, Do, Job
from tests.parity.judge.verdict import Difference, Judgement, Verdict
from tests.parity.outcome import CaseOutcome

_CUT = 110
SECOND_TRY = "at the second try"
"""Words beside the verdict on a case that was worse when it was played first."""


@dataclass(frozen=True, slots=True)
class Result:
    """One case, both outcomes, and the verdict."""

    subject: str
    case: Case
    judgement: Judgement
    alone: CaseOutcome = field(default_factory=CaseOutcome)
    headway: CaseOutcome = field(default_factory=CaseOutcome)

    @property
    def second_try(self) -> bool:
        """True if it was worse when it was played first, and these are the outcomes of the second time."""
        return self.headway.second_try

    def delays_s(self) -> list[float]:
        """Return by how many seconds each job that began on both clusters began later under Headway."""
        return [
            after.began_s - before.began_s
            for label, before in self.alone.jobs.items()
            if (after := self.headway.jobs.get(label)) and before.began_s is not None and after.began_s is not None
        ]

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {
            "subject": self.subject,
            "case": self.case.name,
            "verdict": self.judgement.verdict.value,
            "reason": self.judgement.reason,
            "second_try": self.second_try,
            "differences": [
                {"of": each.subject, "aspect": each.aspect, "text": each.text, "verdict": each.verdict.value}
                for each in self.judgement.differences
            ],
            "alone": self.alone.as_json(),
            "headway": self.headway.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Run:
    """All results of one run, and what it ran on."""

    release: str
    """Release of Slurm, such as 22.05.8."""
    policy: str
    results: Sequence[Result]

    def counts(self) -> dict[Verdict, int]:
        """Return the number of cases of each verdict."""
        found = Counter(result.judgement.verdict for result in self.results)
        return {verdict: found[verdict] for verdict in Verdict if found[verdict]}

    @property
    def is_worse(self) -> bool:
        """True if Headway is worse anywhere, and the documents do not say so."""
        return any(result.judgement.verdict is Verdict.WORSE for result in self.results)


def delays(run: Run) -> str:
    """Return a sentence about the delays of all jobs that began on both clusters."""
    found = [delay_s for result in run.results for delay_s in result.delays_s()]
    again = sum(result.second_try for result in run.results)
    second = f"; {again} cases are as they were {SECOND_TRY}" if again else ""
    if not found:
        return f"No job began on both{second}."
    return f"Jobs began later under Headway by {median(found):.1f} s (median of {len(found)}){second}."


def typed(case: Case) -> str:
    """Return what is typed in a case, in one line."""
    words = []
    for step in case.steps:
        if isinstance(step, Job):
            program = "" if step.program == "sbatch" else f"{step.program} "
            words.append(program + (step.options or step.directives or "no options"))
        elif isinstance(step, Do):
            words.append(step.words)
    return "; ".join(dict.fromkeys(words))


def happened(outcome: CaseOutcome) -> str:
    """Return what became of the jobs of a case, in one line."""
    if outcome.problem:
        return outcome.problem
    texts = []
    for label, job in sorted(outcome.jobs.items(), key=lambda pair: pair[1].began_s or 0.0):
        name = f"{label}: " if len(outcome.jobs) > 1 else ""
        if job.words:
            texts.append(f"{name}refused: {job.words.splitlines()[0]}")
            continue
        place = " on " + " ".join(f"{node}:{gpus}" for node, gpus in sorted(job.gpus.items())) if job.gpus else ""
        reason = f" ({job.reason})" if job.reason else ""
        begun = f" after {job.began_s:.0f} s" if job.began_s is not None and len(outcome.jobs) > 1 else ""
        status = f" {job.exit_code}" if job.exit_code not in {"", "0:0"} else ""
        texts.append(f"{name}{job.state.lower()}{reason}{status}{place}{begun}")
    return "; ".join(texts)


def said(difference: Difference) -> str:
    """Return a difference in one line."""
    subject = f"{difference.subject}: " if difference.subject not in {"", "job"} else ""
    return f"{subject}{difference.aspect}: {difference.text}"


def cut(text: str, most: int = _CUT) -> str:
    """Return the text, shortened to so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
