"""The table of a run on a terminal."""

from __future__ import annotations

from rich.table import Table

from tests.parity.judge.verdict import Verdict
from tests.parity.report.result import SECOND_TRY, Run, cut, delays, happened, said

_STYLES = {
    Verdict.SKIPPED: "dim",
    Verdict.BETTER: "green",
    Verdict.EQUAL: "",
    Verdict.KNOWN: "yellow",
    Verdict.WORSE: "red",
}


def table(run: Run) -> Table:
    """Return a row for each case: its outcome on Slurm alone, and what differs under Headway."""
    made = Table(title=f"Slurm {run.release} alone, and under Headway ({run.policy})")
    for heading in ("case", "Slurm alone", "under Headway", "verdict"):
        made.add_column(heading, overflow="fold")
    for result in run.results:
        judgement = result.judgement
        differs = "\n".join(cut(said(each), 300) for each in judgement.differences) or judgement.reason
        verdict = judgement.verdict
        alone = "" if verdict is Verdict.SKIPPED else cut(happened(result.alone), 200)
        word = f"{verdict.value} {SECOND_TRY}" if result.second_try else verdict.value
        made.add_row(result.case.name, alone, differs or "the same", word, style=_STYLES[verdict])
    return made


def summary(run: Run) -> str:
    """Return the number of cases of each verdict, and the delay of the starts, as one line."""
    counts = ", ".join(f"{n} {verdict.value}" for verdict, n in run.counts().items())
    return f"{len(run.results)} cases: {counts}. {delays(run)}"
