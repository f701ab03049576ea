"""The rules by which two outcomes of a case are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from tests.parity.case import Case
from tests.parity.judge import environment
from tests.parity.judge.verdict import Difference, Judgement, Verdict
from tests.parity.outcome import CaseOutcome, CommandOutcome, JobOutcome

LATE_S = 10.0
"""Delay of a start that is a difference, where jobs wait: the delays of several decisions add up, on a busy machine to seconds."""
LATE_AT_ONCE_S = 4.0
"""The same for a case of one job that can start at once. The controller needs about a second."""
_TOGETHER_S = 2.0
"""Difference of two begins that does not show which job was first."""
_SLURM_PLACES = ("Slurm places it", "Slurm schedules it")
"""Beginnings of explanations of jobs that Headway leaves to Slurm."""
_NOT_ITS_TURN = frozenset({"", "None", "Priority", "Resources"})
"""Slurm's reasons for jobs that only wait for others; which of them it gives depends on the moment."""
_OF_SLURM = re.compile(r"(srun|slurmstepd): |\[[^\]]*\] (error|fatal): ")
"""Beginning of a line that srun or slurmstepd has written ("srun: error: ...", "[12.0] error: ...")."""
_RUNS = frozenset({"RUNNING", "COMPLETING", "COMPLETED"})


def judge(case: Case, alone: CaseOutcome, headway: CaseOutcome, release: str = "") -> Judgement:
    """Return the verdict on a case that was played on that release of Slurm."""
    problem = alone.problem or headway.problem
    if problem:
        side = "on Slurm alone" if alone.problem else "under Headway"
        return Judgement(Verdict.WORSE, (Difference("", "case", f"not played {side}: {problem}", Verdict.WORSE),))
    found = [*_of_jobs(case, alone, headway), *_of_commands(alone, headway), *_of_order(alone, headway)]
    found = [_softened(case, each, release) for each in found]
    verdict = max((each.verdict for each in found), key=lambda each: each.rank, default=Verdict.EQUAL)
    return Judgement(verdict, tuple(found))


def _softened(case: Case, found: Difference, release: str) -> Difference:
    """Return the difference as the documents or the case itself judge it. A case that was not played stays worse."""
    if found.verdict is Verdict.WORSE and case.known.covers(found.aspect, release):
        return replace(found, verdict=Verdict.KNOWN)
    if case.not_worse and found.aspect in case.aspects and found.verdict is Verdict.WORSE:
        return replace(found, verdict=Verdict.BETTER, text=f"{found.text} ({case.not_worse})")
    return found


def _of_jobs(case: Case, alone: CaseOutcome, headway: CaseOutcome) -> Iterator[Difference]:
    for label in sorted(alone.jobs.keys() | headway.jobs.keys()):
        before, after = alone.jobs.get(label), headway.jobs.get(label)
        if before is None or after is None:
            where = "under Headway" if before is None else "on Slurm alone"
            yield Difference(label, "job", f"exists only {where}", Verdict.WORSE)
            continue
        for aspect, text, verdict in _of_job(case, before, after):
            yield Difference(label, aspect, text, verdict)


Found = tuple[str, str, Verdict]


def _of_job(case: Case, alone: JobOutcome, headway: JobOutcome) -> Iterator[Found]:
    if alone.words or headway.words:
        yield from _of_refusal(alone, headway)
        return
    if (alone.state in _RUNS) != (headway.state in _RUNS) or not {alone.state, headway.state} <= _RUNS:
        yield from _of_state(alone, headway)
    if alone.state == headway.state == "PENDING":
        yield from _of_explanation(alone, headway)
    if _runs_again_sooner(alone, headway):
        return  # the environment is that of another run
    yield from _of_start(case, alone, headway)
    if alone.began_s is None or headway.began_s is None:
        return
    yield from _of_place(case, alone, headway)
    for text in environment.differences(alone.environment, headway.environment):
        yield "environment", text, Verdict.WORSE
    yield from _of_step(alone, headway)
    if _in_order(alone.output) != _in_order(headway.output) and "PENDING" not in {alone.state, headway.state}:
        yield "output", f"{_short(headway.output)}, not {_short(alone.output)}", Verdict.WORSE
    if alone.exit_code and headway.exit_code and alone.exit_code != headway.exit_code:
        yield "exit status", f"{headway.exit_code}, not {alone.exit_code}", Verdict.WORSE
    if alone.restarts != headway.restarts:
        yield "restarts", f"{headway.restarts}, not {alone.restarts}", Verdict.WORSE
    if alone.exit_code and headway.exit_code:
        yield from _of_accounting(alone, headway)


def _of_accounting(alone: JobOutcome, headway: JobOutcome) -> Iterator[Found]:
    if alone.accounting and not headway.accounting:
        yield "accounting", "no record", Verdict.WORSE
        return
    for name in sorted(alone.accounting.keys() & headway.accounting.keys()):
        if alone.accounting[name] != headway.accounting[name]:
            yield "accounting", f"{name} {headway.accounting[name]}, not {alone.accounting[name]}", Verdict.WORSE


def _of_refusal(alone: JobOutcome, headway: JobOutcome) -> Iterator[Found]:
    if not headway.words and headway.state == "COMPLETED":
        yield "submission", f"accepted, and it ran; refused on Slurm alone: {_short(alone.words)}", Verdict.BETTER
    elif not headway.words:
        yield "submission", f"accepted ({_standing(headway)}), not refused: {_short(alone.words)}", Verdict.WORSE
    elif not alone.words:
        yield "submission", f"refused: {_short(headway.words)}; Slurm alone: {_standing(alone)}", Verdict.WORSE
    elif alone.words != headway.words:
        yield "submission", f"refused with {_short(headway.words)}, not {_short(alone.words)}", Verdict.WORSE


def _of_state(alone: JobOutcome, headway: JobOutcome) -> Iterator[Found]:
    if alone.state == headway.state:
        return
    text = f"{_standing(headway)}, not {_standing(alone)}"
    yield "state", text, Verdict.BETTER if _runs_again_sooner(alone, headway) else Verdict.WORSE


def _of_explanation(alone: JobOutcome, headway: JobOutcome) -> Iterator[Found]:
    """A job that waits has an explanation. That of a job which Slurm places has Slurm's own reason, where this is not its turn."""
    if not headway.why:
        yield "why", "no explanation", Verdict.WORSE
    elif headway.why.startswith(_SLURM_PLACES) and not _says(alone.reason, headway.why):
        yield "why", f"{_short(headway.why)}, not {alone.reason}", Verdict.WORSE


def _says(reason: str, why: str) -> bool:
    return reason in _NOT_ITS_TURN or reason in why


def _runs_again_sooner(alone: JobOutcome, headway: JobOutcome) -> bool:
    """Return whether a requeued job runs while Slurm alone still waits for two minutes."""
    waits = alone.state == "PENDING" and alone.restarts > 0 and alone.reason == "BeginTime"
    return waits and headway.state in _RUNS and headway.restarts == alone.restarts


def _of_start(case: Case, alone: JobOutcome, headway: JobOutcome) -> Iterator[Found]:
    if alone.began_s is None or headway.began_s is None:
        return
    later_s = headway.began_s - alone.began_s
    if abs(later_s) > (LATE_S if case.waits else LATE_AT_ONCE_S):
        text = f"after {headway.began_s:.0f} s, not {alone.began_s:.0f} s"
        yield "start", text, Verdict.WORSE if later_s > 0 else Verdict.BETTER


def _of_place(case: Case, alone: JobOutcome, headway: JobOutcome) -> Iterator[Found]:
    if case.where and alone.nodes != headway.nodes:
        yield "nodes", f"{_nodes(headway)}, not {_nodes(alone)}", Verdict.WORSE
    elif _differ_in_division(alone, headway):
        fewer = len(headway.gpus) < len(alone.gpus)
        verdict = Verdict.BETTER if fewer else Verdict.WORSE
        yield "nodes", f"{_nodes(headway)}, not {_nodes(alone)}", verdict
    if alone.resources and headway.resources and alone.resources != headway.resources:
        yield "resources", f"{headway.resources}, not {alone.resources}", Verdict.WORSE


def _differ_in_division(alone: JobOutcome, headway: JobOutcome) -> bool:
    """Return whether the GPUs are divided over other numbers of nodes, or otherwise where Slurm has shown how."""
    if "PENDING" in {alone.state, headway.state}:
        return False
    shown = any(alone.gpus.values()) and any(headway.gpus.values())
    return len(alone.gpus) != len(headway.gpus) or (
        shown and sorted(alone.gpus.values()) != sorted(headway.gpus.values())
    )


def _of_step(alone: JobOutcome, headway: JobOutcome) -> Iterator[Found]:
    if len(alone.tasks) != len(headway.tasks):
        yield "step", f"{len(headway.tasks)} tasks, not {len(alone.tasks)}", Verdict.WORSE
        return
    texts = (
        text
        for before, after in zip(alone.tasks, headway.tasks, strict=True)
        for text in environment.differences(before, after)
    )
    for text in dict.fromkeys(texts):
        yield "step", text, Verdict.WORSE


def _of_commands(alone: CaseOutcome, headway: CaseOutcome) -> Iterator[Difference]:
    for label in sorted(alone.commands.keys() | headway.commands.keys()):
        before, after = alone.commands.get(label), headway.commands.get(label)
        if before is None or after is None:
            where = "under Headway" if before is None else "on Slurm alone"
            yield Difference(label, "command", f"played only {where}", Verdict.WORSE)
        elif before != after:
            text = f"{_command(after)}, not {_command(before)}"
            yield Difference(label, "command", text, Verdict.WORSE)


def _of_order(alone: CaseOutcome, headway: CaseOutcome) -> Iterator[Difference]:
    """Yield jobs that began in the other order, or beside each other where one waited for the other on Slurm alone."""
    shared = sorted(label for label in alone.jobs.keys() & headway.jobs.keys())
    for one, other in combinations(shared, 2):
        before = _relation(alone.jobs[one], alone.jobs[other])
        after = _relation(headway.jobs[one], headway.jobs[other])
        if before in {"before", "after"} and after and before != after:
            text = f"{one} {after} {other}, not {before}"
            yield Difference("", "order", text, Verdict.WORSE)


def _relation(one: JobOutcome, other: JobOutcome) -> str:
    """Return whether a job ended before another one began; empty if either never ran, or both began at nearly the same time."""
    if one.began_s is None or other.began_s is None or abs(one.began_s - other.began_s) < _TOGETHER_S:
        return ""
    if one.ended_s is not None and one.ended_s <= other.began_s + 1:
        return "before"
    if other.ended_s is not None and other.ended_s <= one.began_s + 1:
        return "after"
    return "beside"


def _standing(job: JobOutcome) -> str:
    why = f": {_short(job.why)}" if job.why else f" ({job.reason})" if job.reason else ""
    return f"{job.state.lower()}{why}"


def _nodes(job: JobOutcome) -> str:
    return " ".join(f"{node}:{number}" for node, number in sorted(job.gpus.items())) or "no nodes"


def _command(done: CommandOutcome) -> str:
    return f"{'done' if done.status == 0 else 'refused'}{': ' if done.words else ''}{_short(done.words)}"


def _in_order(output: str) -> tuple[list[str], list[str]]:
    """Return the job's own lines, and those of Slurm's programs, which write independently of each other, in alphabetical order."""
    lines = output.splitlines()
    return [line for line in lines if not _OF_SLURM.match(line)], sorted(filter(_OF_SLURM.match, lines))


def _short(text: str) -> str:
    line = " / ".join(text.split("\n"))
    return line if len(line) <= 160 else line[:157] + "..."
