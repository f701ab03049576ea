"""Reports of an agent that lies on a real node."""

from __future__ import annotations

from collections import Counter

from protos.headway.v1 import agent_pb2
from tests.campaign.real.faults.liar import Liar
from tests.campaign.real.faults.lying_agent import Told, read_told

QUEUE = "70 n2\n71 n1\n72 n[1-2]\n73 n3\n74 \n"


def told(liar: Liar) -> list[agent_pb2.AgentReport]:
    return [report for number in range(liar.outbox.last) if (report := liar.outbox.after(number)) is not None]


def test_it_lies_about_jobs_on_other_nodes_only() -> None:
    liar = Liar("n1", 1)
    liar.see(QUEUE)
    for _ in range(300):
        liar.tell()
    reports = told(liar)
    kinds = Counter(report.WhichOneof("kind") for report in reports)
    assert min(kinds["job"], kinds["ended"], kinds["answer"]) > 20
    jobs = {report.job.job.job_id for report in reports if report.WhichOneof("kind") == "job"}
    jobs |= {report.ended.job.job_id for report in reports if report.WhichOneof("kind") == "ended"}
    assert jobs == {70, 73, 2**40}
    assert any(report.answer.accepted for report in reports)


def test_it_never_says_that_its_own_ranks_have_saved() -> None:
    liar = Liar("n1", 1)
    command = agent_pb2.AgentCommand(id="p1.1.5", save=agent_pb2.SaveRequest(within_s=5.0))
    for _ in range(40):
        liar.on_command(command)
    answers = [report.answer for report in told(liar)]
    assert 5 < len(answers) < 35
    assert {(answer.id, answer.accepted) for answer in answers} == {("p1.1.5", False)}


def test_what_it_has_told_is_read_from_its_log() -> None:
    assert read_told("") == Told(0, 0)
    assert read_told("1 lies told, 0 acknowledged\n30 lies told, 28 acknowledged\n31 lies") == Told(30, 28)
    assert read_told("Traceback (most recent call last):\n").problem
