"""docs/parity.md, as the command writes it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tests.parity.judge.rules import LATE_AT_ONCE_S, LATE_S
from tests.parity.judge.verdict import Verdict
from tests.parity.report.result import SECOND_TRY, Result, Run, cut, delays, happened, said, typed

_HEAD = """# Parity with Slurm alone

The command `python -m tests.parity --docs docs/parity.md` has written this page. It submits the same jobs to two
[mini-clusters](minicluster.md), one with Slurm alone and one with Headway beside it, and compares what users and operators see: the
words of a refusal, the state, the nodes and GPUs, the order of the jobs of a case, the environments of the batch script and of the
tasks of its step, the exit status, restarts, and the record in Slurm's accounting. `headway why` has to explain each job that still
waits at the end, one that Slurm places with Slurm's own reason. Each case has three nodes of 8 GPUs (4 `a100`, 2 `h100`, 2 parts
`1g.10gb`). `python -m tests.parity --only 'gpus-*'` plays some of the cases. The exit status is 1 where
Headway is worse and [Operations](operations.md#known-limits) does not say so.

- **better**: Headway differs, to the advantage of users; **equal**: nothing differs
- **known limit**: Headway is worse, and [Operations](operations.md#known-limits) says so, mostly in known limits; **worse**: it
  does not. Of a case with a known limit only the aspects count in which it is documented: any other difference is worse.
- A start counts as later from {at_once_s:g} s on, and from {late_s:g} s in cases of several steps, where jobs wait; the delays
  below are those of all jobs that began on both. A case that is worse is played again, because other work on the machine delays
  either side; “at the second try” marks the cases that are not worse only then.
"""
_CODE = {"|": "\\|", "\n": " / "}


def page(run: Run) -> str:
    """Return the whole page."""
    counts = ", ".join(f"{number} {verdict.value}" for verdict, number in run.counts().items())
    played = f"on Slurm {run.release} with policy `{run.policy}`"
    about = f"Outcomes when each case was last played, {played}: {len(run.results)} cases, {counts}.\n"
    head = _HEAD.format(at_once_s=LATE_AT_ONCE_S, late_s=LATE_S)
    return "\n".join([head, about, delays(run) + "\n", *_differing(run), *_tables(run)])


def _differing(run: Run) -> Iterator[str]:
    """Yield a list of the cases in which Headway is worse, with what differs."""
    for verdict, title in ((Verdict.WORSE, "Worse"), (Verdict.KNOWN, "Known limits")):
        results = [result for result in run.results if result.judgement.verdict is verdict]
        if not results:
            continue
        yield f"## {title}\n"
        yield "| case | what differs under Headway |\n|---|---|"
        for result in results:
            texts = [said(each) for each in result.judgement.differences if each.verdict is verdict]
            limit = f" “{result.case.known.words}”" if verdict is Verdict.KNOWN else ""
            yield f"| `{result.case.name}` | {_cell(cut('; '.join(texts), 400))}{_cell(limit)} |"
        yield ""


def _tables(run: Run) -> Iterator[str]:
    for subject, results in groupby(run.results, key=lambda result: result.subject):
        yield f"## {subject}\n"
        yield "| case | typed | Slurm alone | Headway | |\n|---|---|---|---|---|"
        yield from (_row(result) for result in results)
        yield ""


def _row(result: Result) -> str:
    judgement = result.judgement
    verdict = judgement.verdict.value
    if judgement.verdict is Verdict.SKIPPED:
        return f"| `{result.case.name}` | {_code(typed(result.case))} | | | {verdict}: {_cell(judgement.reason)} |"
    alone, headway = happened(result.alone), happened(result.headway)
    if judgement.verdict is Verdict.EQUAL or alone == headway:
        headway = "the same" if alone == headway or judgement.verdict is Verdict.EQUAL else headway
    if judgement.verdict is Verdict.BETTER:
        verdict += f": {_cell(cut('; '.join(said(each) for each in judgement.differences)))}"
    if result.second_try:
        verdict += f" {SECOND_TRY}"
    return (
        f"| `{result.case.name}` | {_code(cut(typed(result.case), 160))} | {_cell(cut(alone, 200))} "
        f"| {_cell(cut(headway, 200))} | {verdict} |"
    )


def _cell(text: str) -> str:
    text = text.replace("<", "&lt;").replace("{", "").replace("}", "")
    for mark, instead in _CODE.items():
        text = text.replace(mark, instead)
    return text


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"
