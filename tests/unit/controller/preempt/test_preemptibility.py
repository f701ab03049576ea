"""Jobs that may be preempted and how, and answers of ranks that are one save of all of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from controller.preempt.attempts.checkpoint_quorum import may_pass, no_rank_trains, problem, saved_step
from controller.preempt.preemptibility import preemptibility
from controller.preempt.reports.job_reports import NodeReport, ReportTable, Usr1, newest_step
from controller.profiles.windows import RunKey
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.preemption import Cause, Preemption, PreemptionMethod, RelocationConstraint, Stage
from nodeagent.jobsocket.registry import JobRegistry
from nodeagent.saves.coordinator import SaveAnswer, SaveCoordinator, SaveRequest
from nodeagent.uplink.encode import answer_message, reason_message
from nodeagent.wire.reasons import Reason
from protos.headway.v1 import agent_pb2
from tests.unit.controller.examples.build import running as built
from tests.unit.controller.worlds.preempted import Ranks

NODES = frozenset({"n1", "n2"})


def running(**changes: Any) -> SlurmJob:
    return replace(built("5", on={"n1": 4, "n2": 4}), **{"raw_id": 5, **changes})


def reports(
    first: tuple[int, ...] = (0, 1), second: tuple[int, ...] = (2, 3), world: int | None = 4
) -> dict[str, NodeReport]:
    blank = NodeReport((0, 1), world, first, None, None, None)
    return {"n1": blank, "n2": replace(blank, ranks=(2, 3), saving=second)}


def test_a_job_whose_ranks_all_save_gets_a_request() -> None:
    found = preemptibility(running(), reports(), NODES, None)
    assert (found.way, found.may) == (PreemptionMethod.CHECKPOINT, True)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (reports(()), "ranks 0, 1 of 4 have not called headway_job.checkpoint"),
        (reports((), ()), "no rank has called headway_job.checkpoint"),
        (reports((0,)), "rank 1 of 4 has not called headway_job.checkpoint"),
        (reports(world=8), "ranks 4, 5, 6, 7 of 8 have not called headway_job.checkpoint"),
        (reports((0, 1), (1, 2, 3)), "several programs train in it, and only one can be asked to save"),
        ({**reports(), "n2": replace(reports()["n2"], world_size=2)}, "several programs train in it"),
        ({}, "no process of it has reported to the agent of its node"),
    ],
)
def test_one_rank_that_does_not_save_is_one_too_many(known: dict[str, NodeReport], why: str) -> None:
    found = preemptibility(running(), known, NODES, None)
    assert (found.way, found.final) == (PreemptionMethod.NONE, False)
    assert why in found.why_not
    # a job that comes back by itself, as its user says, is signalled
    declared = preemptibility(running(comment="headway=preemptible"), known, NODES, None)
    assert (declared.way, declared.may) == (PreemptionMethod.SIGNAL, True)


def test_a_job_whose_agent_is_not_connected_is_not_preemptible() -> None:
    found = preemptibility(running(), reports(), {"n1"}, None)
    assert (found.way, found.why_not) == (
        PreemptionMethod.CHECKPOINT,
        "could save, but the agent of n2 is not connected",
    )
    found = preemptibility(running(), reports(), set(), None)
    assert found.why_not == "could save, but the agents of n1, n2 are not connected"
    assert preemptibility(running(comment="headway=preemptible"), reports(), set(), None).way is PreemptionMethod.SIGNAL


HEEDS, ENDS, LETS_IT_PASS = Usr1(1, 0), Usr1(1, 1), Usr1(0, 0)


@pytest.mark.parametrize(
    ("usr1", "connected", "why"),
    [
        ({"n1": HEEDS, "n2": LETS_IT_PASS}, NODES, ""),
        ({"n1": HEEDS, "n2": ENDS}, NODES, "would be ended by USR1: on n2, a process"),
        ({"n1": ENDS, "n2": ENDS}, NODES, "would be ended by USR1: on n1, n2, a process"),
        ({"n1": LETS_IT_PASS, "n2": LETS_IT_PASS}, NODES, "would not react to USR1: no process in it catches"),
        ({"n1": LETS_IT_PASS}, NODES, "would not react to USR1: no process in it catches"),  # no rank is on n2
        ({}, NODES, "cannot be sent USR1 yet"),
        # its user's word is taken where an agent is not there, or cannot tell
        ({"n1": LETS_IT_PASS, "n2": ENDS}, {"n1"}, ""),
        ({"n1": LETS_IT_PASS, "n2": None}, NODES, ""),
        ({"n1": ENDS, "n2": ENDS}, set(), ""),
    ],
)
def test_the_signal_is_sent_only_to_jobs_that_survive_it(
    usr1: dict[str, Usr1 | None], connected: Collection[str], why: str
) -> None:
    known = {node: NodeReport((), None, (), None, None, None, found) for node, found in usr1.items()}
    found = preemptibility(running(comment="headway=preemptible"), known, connected, None, watching=NODES)
    assert (found.way, found.may) == (PreemptionMethod.NONE, False) if why else (PreemptionMethod.SIGNAL, True)
    assert found.why_not.startswith(why)
    assert not found.final


def test_no_preemption_waits_for_agents_that_never_report_signals() -> None:
    assert (
        preemptibility(running(comment="headway=preemptible"), {}, NODES, None, watching={"n1"}).way
        is PreemptionMethod.SIGNAL
    )


@pytest.mark.parametrize("stage", list(Stage))
def test_what_runs_again_may_be_preempted_again(stage: Stage) -> None:
    row = Preemption(
        1, "5", 5, 0, 0, Cause.POLICY, "", PreemptionMethod.CHECKPOINT, force=False, nodes=("n1",),
        constraint=RelocationConstraint(), within_s=60.0,
        stage=stage, asked_s=0.0,
    )  # fmt: skip
    found = preemptibility(running(), reports(), NODES, row)
    assert found.final is (stage in {Stage.ASKED, Stage.SAVED, Stage.STOPPED})


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (running(phase=Phase.COMPLETING), "is ending"),
        (running(phase=Phase.CONFIGURING), "is still starting"),
        (running(phase=Phase.ENDED, state="FAILED"), "has ended (FAILED)"),
        (running(requeue=False), "was submitted with --no-requeue: Slurm would not start it again"),
        (
            running(expedited=True),
            "was submitted with --requeue=expedite: Slurm would start it again at once, on the same nodes",
        ),
        (running(het_job_id=4), "is interactive, or part of a heterogeneous job: Slurm does not requeue it"),
        (running(raw_id=None), "has no job number in Slurm by which agents could recognise it"),
    ],
)
def test_what_slurm_does_not_requeue_is_not_even_forced(job: SlurmJob, why: str) -> None:
    found = preemptibility(job, reports(), NODES, None)
    assert (found.why_not, found.final) == (why, True)


# --- what ranks answered


def answer(ranks: tuple[int, ...], step: int = 41, world: int = 4) -> agent_pb2.CommandAnswer:
    saved = agent_pb2.SavedRanks(ranks=ranks, step=step, world_size=world)
    return agent_pb2.CommandAnswer(accepted=True, saved=saved)


def test_all_ranks_at_one_step_are_one_save() -> None:
    answers = {"n1": answer((0, 2)), "n2": answer((1, 3))}
    assert (saved_step(NODES, answers), problem(NODES, answers)) == (41, "")
    assert saved_step(NODES, {"n1": answers["n1"]}) is None
    assert problem(NODES, {"n1": answers["n1"]}) == ""


def test_the_agents_own_reasons_are_understood() -> None:
    # given the answer of an agent that knows of no process of the job
    said: list[SaveAnswer] = []
    saves = SaveCoordinator(JobRegistry(), _Nobody(), said.append, 0)
    saves.start(SaveRequest("p1.1", 5, 0, 60.0, 120.0), 10_000_000_000)
    (none,) = said
    nobody = answer_message(none, 1.0).answer
    assert no_rank_trains(nobody)
    assert may_pass(nobody)
    # then it does not matter where others train, and decides nothing before they have answered
    assert saved_step(NODES, {"n1": answer((0, 1, 2, 3)), "n2": nobody}) == 41
    assert problem(NODES, {"n2": nobody}) == ""
    assert problem(NODES, {"n1": nobody, "n2": nobody}) == f"n1: {none.problem}; n2: {none.problem}"


@pytest.mark.parametrize("reason", agent_pb2.AnswerReason.values())
@pytest.mark.parametrize(
    "words", ["nobody of job 5 trains here", "rank 0 has trained on since", "another rank is gone", ""]
)
def test_the_text_of_an_answer_decides_nothing(reason: agent_pb2.AnswerReason.ValueType, words: str) -> None:
    said = agent_pb2.CommandAnswer(accepted=False, problem=words, reason=reason)
    gone, none, on = Reason.RANKS_GONE, Reason.NO_TRAINERS, Reason.TRAINED_ON
    assert no_rank_trains(said) is (reason == reason_message(none))
    assert may_pass(said) is (reason in {reason_message(each) for each in (gone, none, on)})


def test_an_agent_that_gives_no_reason_excuses_nothing() -> None:
    # given an agent of an earlier version, whose words say that none of the ranks is on its node
    old = agent_pb2.CommandAnswer(accepted=False, problem="nobody of job 5 trains here")
    # then the job is not stopped for the others' save
    answers = {"n1": answer((0, 1, 2, 3)), "n2": old}
    assert saved_step(NODES, answers) is None
    assert problem(NODES, answers) == "n2: nobody of job 5 trains here"


class _Nobody:
    """Carries frames to no job."""

    def request_save(self, connection: int, save_id: str, still_s: float, why: str) -> bool:
        raise AssertionError("nobody is there to be asked")

    def request_go_on(self, connection: int, save_id: str) -> bool:
        return False


# --- what agents last said


def test_only_the_newest_report_of_a_run_and_node_counts() -> None:
    known = ReportTable()
    assert known.take("n1", Ranks(5, (0,), 2, first_step_s=None).report()) == (
        RunKey(5, 0), NodeReport((0,), 2, (0,), None, None, None)
    )  # fmt: skip
    known.take("n1", Ranks(5, (0,), 2, saved_step=30).report())
    known.take("n2", Ranks(5, (1,), 2, saved_step=20).report())
    assert known.of(RunKey(5, 0))["n1"].saved_step == 30
    assert newest_step(known.of(RunKey(5, 0))) == 20
    assert known.of(RunKey(5, 1)) == {}
    known.take("n2", agent_pb2.AgentReport(ended=agent_pb2.JobEnded(job=agent_pb2.JobName(job_id=5))))
    assert list(known.of(RunKey(5, 0))) == ["n1"]
    known.keep({6}, NODES)
    assert known.of(RunKey(5, 0)) == {}


def test_an_agent_that_reports_signals_is_recognized() -> None:
    known = ReportTable()
    known.take("n1", Ranks(5, (0,), 2).report())
    report = Ranks(6, (0,), 2).report()
    report.job.usr1.CopyFrom(agent_pb2.JobUsr1(caught=2))
    known.take("n2", report)
    assert (known.of(RunKey(5, 0))["n1"].usr1, known.of(RunKey(6, 0))["n2"].usr1) == (None, Usr1(2, 0))
    assert known.watching == {"n2"}
    known.keep({5, 6}, {"n1"})  # n2 has left the cluster
    assert known.watching == set()


def test_with_a_node_without_a_checkpoint_the_newest_step_is_unknown() -> None:
    blank = NodeReport((0,), 2, (0,), None, None, None)
    assert newest_step({"n1": replace(blank, saved_step=7), "n2": blank}) is None
    assert newest_step({"n1": replace(blank, restored_step=5), "n2": replace(blank, restored_step=5)}) == 5
    assert newest_step({}) is None


def test_a_world_size_that_a_job_claims_costs_no_memory() -> None:
    known = {"n1": NodeReport((0,), 2**20, (0,), None, None, None)}
    whole = {"n1": answer((0,), world=2**20)}
    tracemalloc.start()
    try:
        found = preemptibility(running(), known, NODES, None)
        step = saved_step({"n1"}, whole)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "ranks 1, 2, 3, 4, 5 and 1048570 more of 1048576 have not called" in found.why_not
    assert step is None
    assert peak_bytes < 1_000_000


def test_ranks_beyond_the_world_that_a_job_claims_are_missing_too() -> None:
    known = reports((0, 1), (2, 3), world=4)
    known["n2"] = replace(known["n2"], ranks=(2, 3, 9))
    assert "rank 9 of 4 has not called headway_job.checkpoint" in preemptibility(running(), known, NODES, None).why_not
