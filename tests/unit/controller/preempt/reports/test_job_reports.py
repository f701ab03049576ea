"""The table of the newest reports: what is found in it, and its bound."""

from __future__ import annotations

from controller.preempt.reports.job_reports import ReportTable
from controller.profiles.windows import RunKey
from protos.headway.v1 import agent_pb2


def report(job_id: int, restart: int, steps: int = 1) -> agent_pb2.AgentReport:
    name = agent_pb2.JobName(job_id=job_id, restart=restart)
    return agent_pb2.AgentReport(job=agent_pb2.JobReport(job=name, ranks=range(50), steps=steps))


def ended(job_id: int, restart: int) -> agent_pb2.AgentReport:
    return agent_pb2.AgentReport(ended=agent_pb2.JobEnded(job=agent_pb2.JobName(job_id=job_id, restart=restart)))


def runs(table: ReportTable, job_id: int, most: int) -> dict[int, set[str]]:
    """Return restart → nodes with a report about it."""
    return {restart: set(found) for restart in range(most) if (found := table.of(RunKey(job_id, restart)))}


def test_the_newest_report_of_each_node_counts() -> None:
    table = ReportTable()
    for node, steps in (("n1", 1), ("n2", 5), ("n1", 7)):
        table.take(node, report(7, 0, steps))

    assert {node: found.steps for node, found in table.of(RunKey(7, 0)).items()} == {"n1": 7, "n2": 5}


def test_an_agent_that_invents_runs_replaces_only_its_own_reports() -> None:
    table = ReportTable()
    table.take("n1", report(7, 3))
    for restart in range(1000):
        table.take("n2", report(7, restart))

    assert runs(table, 7, 1000) == {3: {"n1"}, 998: {"n2"}, 999: {"n2"}}
    assert len(table._runs) == 3


def test_an_agent_that_invents_jobs_while_slurmctld_is_away_replaces_only_its_own_reports() -> None:
    table = ReportTable()
    table.take("n1", report(7, 0))
    sizes = []
    for job_id in range(100, 10_100):
        table.take("n2", report(job_id, 0))
        table.take("n2", report(7, 0))  # a job that goes on is among the newest
        sizes.append((len(table._runs), sum(map(len, table._restarts.values()))))

    assert sizes[-1] == sizes[2_000] == (1_000, 1_001)
    assert runs(table, 7, 1) == {0: {"n1", "n2"}}
    table.keep(set(), set())
    assert (table._runs, table._restarts) == ({}, {})


def test_a_run_that_slurm_does_not_show_yet_is_kept_beside_the_present_one() -> None:
    table = ReportTable()
    for restart in (4, 5, 4, 5):
        table.take("n1", report(7, restart))

    assert runs(table, 7, 10) == {4: {"n1"}, 5: {"n1"}}


def test_jobs_and_nodes_that_are_gone_are_forgotten() -> None:
    table = ReportTable()
    for job_id in (7, 8):
        for node in ("n1", "n2"):
            table.take(node, report(job_id, 0))

    table.keep({7}, {"n1"})

    assert (runs(table, 7, 1), runs(table, 8, 1)) == ({0: {"n1"}}, {})


def test_nothing_is_left_of_runs_that_have_ended() -> None:
    table = ReportTable()
    for restart in range(5):
        table.take("n1", report(7, restart))
        table.take("n1", ended(7, restart))
    table.take("n1", ended(9, 0))

    assert (table._runs, table._restarts) == ({}, {})
