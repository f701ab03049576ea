"""The rules by which outcomes are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.parity.case import Case, Limit, Pause, one, story
from tests.parity.judge.rules import judge
from tests.parity.judge.verdict import Verdict
from tests.parity.outcome import CaseOutcome, CommandOutcome, JobOutcome

CASE = one("some", "--gres=gpu:1")
RAN = JobOutcome(
    state="COMPLETED",
    exit_code="0:0",
    began_s=1.0,
    ended_s=3.0,
    gpus={"n1": 2},
    resources="cpu=1,gres/gpu=2",
    environment={"SLURM_NTASKS": "1", "SLURM_JOB_ID": "5", "SLURM_JOB_SLUID": "sA", "CUDA_VISIBLE_DEVICES": "0,1"},
    accounting={"State": "COMPLETED"},
)
REFUSED = JobOutcome(words="Invalid feature specification")
WAITS = JobOutcome(state="PENDING", reason="Resources", why="Needs 8 GPUs on one node.")
PASSED = replace(
    WAITS, reason="QOSMaxJobsPerUserLimit", why="Slurm places it, not Headway (Slurm: PENDING, QOSMaxJobsPerUserLimit)."
)


def verdict(alone: JobOutcome, headway: JobOutcome, case: Case = CASE) -> tuple[Verdict, set[str]]:
    """Return the verdict on two outcomes of one job, and the aspects that differ."""
    found = judge(case, CaseOutcome({"job": alone}), CaseOutcome({"job": headway}))
    return found.verdict, {each.aspect for each in found.differences}


def test_messages_of_slurms_programs_may_come_in_any_order_and_those_of_the_job_may_not() -> None:
    messages = (
        "srun: error: n1: task 0: Exited with exit code 2",
        "[<id>] error: execve(): bash: No such file or directory",
    )
    here, there = (replace(RAN, output="\n".join(("one", *each, "two"))) for each in (messages, messages[::-1]))
    assert verdict(here, there) == (Verdict.EQUAL, set())
    assert verdict(here, replace(RAN, output="\n".join(("two", *messages, "one")))) == (Verdict.WORSE, {"output"})
    assert verdict(here, replace(RAN, output="one\ntwo")) == (Verdict.WORSE, {"output"})


@pytest.mark.parametrize("outcome", [RAN, REFUSED, WAITS, PASSED])
def test_an_outcome_equals_itself(outcome: JobOutcome) -> None:
    assert verdict(outcome, outcome) == (Verdict.EQUAL, set())


@pytest.mark.parametrize(
    ("alone", "headway", "aspect"),
    [
        (REFUSED, WAITS, "submission"),
        (RAN, REFUSED, "submission"),
        (REFUSED, replace(REFUSED, words="no"), "submission"),
        (RAN, WAITS, "state"),
        (WAITS, RAN, "state"),
        (RAN, replace(RAN, began_s=30.0), "start"),
        (RAN, replace(RAN, gpus={"n1": 1, "n2": 1}), "nodes"),
        (RAN, replace(RAN, resources="cpu=2,gres/gpu=2"), "resources"),
        (RAN, replace(RAN, environment={**RAN.environment, "SLURM_NTASKS": "2"}), "environment"),
        (RAN, replace(RAN, environment={**RAN.environment, "SLURM_MORE": "2"}), "environment"),
        (RAN, replace(RAN, environment={}), "environment"),
        (RAN, replace(RAN, environment={**RAN.environment, "CUDA_VISIBLE_DEVICES": "0"}), "environment"),
        (RAN, replace(RAN, tasks=({},)), "step"),
        (RAN, replace(RAN, output="other"), "output"),
        (RAN, replace(RAN, state="FAILED", exit_code="1:0"), "exit status"),
        (RAN, replace(RAN, restarts=1), "restarts"),
        (RAN, replace(RAN, accounting={"State": "FAILED"}), "accounting"),
        (RAN, replace(RAN, accounting={}), "accounting"),
        (WAITS, replace(WAITS, why=""), "why"),
        (PASSED, replace(PASSED, why="Slurm places it, not Headway (Slurm: PENDING, ReqNodeNotAvail)."), "why"),
    ],
)
def test_each_difference_is_worse(alone: JobOutcome, headway: JobOutcome, aspect: str) -> None:
    found, aspects = verdict(alone, headway)
    assert found is Verdict.WORSE
    assert aspect in aspects


@pytest.mark.parametrize(
    "headway",
    [
        replace(RAN, began_s=4.5),
        replace(RAN, state="RUNNING", exit_code="", ended_s=None),
        replace(RAN, gpus={"n2": 2}),
        replace(
            RAN,
            environment={
                **RAN.environment,
                "SLURM_JOB_ID": "9",
                "SLURM_JOB_SLUID": "sB",
                "CUDA_VISIBLE_DEVICES": "4,5",
            },
        ),
        replace(RAN, environment={**RAN.environment, "SLURM_SCRIPT_CONTEXT": "prolog_task"}),
    ],
)
def test_what_may_differ_is_equal(headway: JobOutcome) -> None:
    assert verdict(RAN, headway)[0] is Verdict.EQUAL


@pytest.mark.parametrize(
    ("alone", "headway"),
    [
        (replace(RAN, began_s=30.0), RAN),
        (replace(RAN, gpus={"n1": 1, "n2": 1}), RAN),
        (replace(WAITS, restarts=1, reason="BeginTime"), RAN),
    ],
)
def test_sooner_or_closer_is_better(alone: JobOutcome, headway: JobOutcome) -> None:
    found, _ = verdict(alone, replace(headway, restarts=alone.restarts))
    assert found is Verdict.BETTER


def test_where_the_request_names_the_nodes_they_must_be_the_same() -> None:
    assert verdict(RAN, replace(RAN, gpus={"n2": 2}), replace(CASE, where=True))[1] == {"nodes"}


def test_a_documented_limit_is_known_only_where_headway_is_worse() -> None:
    known = replace(CASE, known=Limit("words of the documents", ("submission",)))
    assert verdict(REFUSED, WAITS, known)[0] is Verdict.KNOWN
    assert verdict(RAN, RAN, known)[0] is Verdict.EQUAL


def test_what_is_worse_beside_a_documented_limit_is_worse() -> None:
    known = replace(CASE, known=Limit("gets its least number of nodes", ("resources", "accounting")))
    other = replace(RAN, resources="cpu=2,gres/gpu=2", accounting={"State": "FAILED"})
    assert verdict(RAN, other, known)[0] is Verdict.KNOWN
    assert verdict(RAN, replace(other, output="other"), known)[0] is Verdict.WORSE
    assert verdict(RAN, WAITS, known)[0] is Verdict.WORSE
    assert judge(known, CaseOutcome(), CaseOutcome(problem="no answer")).verdict is Verdict.WORSE


@pytest.mark.parametrize(("release", "found"), [("26.05.5", Verdict.KNOWN), ("22.05.8", Verdict.WORSE)])
def test_a_limit_of_some_releases_is_none_of_the_others(release: str, found: Verdict) -> None:
    known = replace(CASE, known=Limit("words", ("step",), releases=("26.05",)))
    alone, headway = CaseOutcome({"job": RAN}), CaseOutcome({"job": replace(RAN, tasks=({},))})
    assert judge(known, alone, headway, release).verdict is found


def test_where_jobs_wait_a_later_start_is_less_of_a_difference() -> None:
    several = story("some", *CASE.steps, Pause(1))
    assert verdict(RAN, replace(RAN, began_s=8.0))[1] == {"start"}
    assert verdict(RAN, replace(RAN, began_s=8.0), several)[1] == set()
    assert verdict(RAN, replace(RAN, began_s=12.0), several)[1] == {"start"}


def test_a_command_that_was_played_on_one_side_only_is_worse() -> None:
    done = CaseOutcome(commands={"change": CommandOutcome(0, "")})
    for alone, headway in ((done, CaseOutcome()), (CaseOutcome(), done)):
        assert judge(CASE, alone, headway).verdict is Verdict.WORSE


def test_a_case_can_say_that_another_time_is_not_worse_but_not_another_environment() -> None:
    case = replace(CASE, not_worse="Slurm waits for two minutes")
    assert verdict(RAN, replace(RAN, began_s=60.0), case)[0] is Verdict.BETTER
    assert verdict(RAN, replace(RAN, environment={}), case)[0] is Verdict.WORSE


def test_the_order_of_two_jobs_counts() -> None:
    first, second = replace(RAN, began_s=1.0, ended_s=4.0), replace(RAN, began_s=5.0, ended_s=8.0)
    alone, headway = CaseOutcome({"a": first, "b": second}), CaseOutcome({"a": second, "b": first})
    found = judge(CASE, alone, headway)
    assert [(each.aspect, each.text) for each in found.differences] == [("order", "a after b, not before")]


def test_jobs_that_begin_at_nearly_the_same_time_have_no_order() -> None:
    first, second = replace(RAN, began_s=1.0, ended_s=1.5), replace(RAN, began_s=2.5, ended_s=4.0)
    alone, headway = CaseOutcome({"a": first, "b": second}), CaseOutcome({"a": second, "b": first})
    assert judge(CASE, alone, headway).verdict is Verdict.EQUAL


def test_a_refused_job_that_runs_under_headway_is_better() -> None:
    assert verdict(REFUSED, RAN)[0] is Verdict.BETTER


def test_status_and_words_of_commands_count() -> None:
    alone, headway = CommandOutcome(0, ""), CommandOutcome(1, "Access denied")
    found = judge(CASE, CaseOutcome(commands={"change": alone}), CaseOutcome(commands={"change": headway}))
    assert (found.verdict, found.differences[0].text) == (Verdict.WORSE, "refused: Access denied, not done")


def test_a_case_that_could_not_be_played_is_worse() -> None:
    assert judge(CASE, CaseOutcome(), CaseOutcome(problem="no answer")).verdict is Verdict.WORSE
