"""Only what changed is parsed again, and no line break in a user's text ever makes a job."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.slurm.model.cluster import SlurmNode
from controller.slurm.model.job import Phase
from controller.slurm.scontrol.incremental import JobReading, JobTable, parse_answer
from controller.slurm.scontrol.parse_nodes import parse_node, ticking_in_node
from controller.slurm.scontrol.rows import RowCache
from tests.bench.measuring.scontrol_text import ScontrolText
from tests.unit.controller.slurm.scontrol.text import CLOCK, RUNNING, at, job_line, node_line


def section(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def phases(reading: JobReading) -> dict[str, Phase]:
    return {job.key.job_id: job.phase for job in reading.jobs}


def test_jobs_come_in_slurms_order() -> None:
    table = JobTable(CLOCK)
    reading = table.update(section(job_line(raw="9"), job_line(raw="2"), job_line(raw="5")))
    assert [job.key.job_id for job in reading.jobs] == ["9", "2", "5"]
    assert reading.contested == frozenset()


def test_an_empty_queue() -> None:
    for text in (b"No jobs in the system\n", b""):
        reading = JobTable(CLOCK).update(text)
        assert (reading.jobs, reading.contested) == ((), frozenset())


def test_an_unchanged_job_is_the_same_object() -> None:
    table = JobTable(CLOCK)
    first = table.update(section(job_line(raw="1"), job_line(raw="2"))).jobs
    second = table.update(section(job_line(raw="1"), job_line(raw="2", reason="Dependency"))).jobs
    assert second[0] is first[0]
    assert (second[1] is first[1], second[1].reason) == (False, "Dependency")


def test_a_counter_that_changes_makes_no_new_object() -> None:
    table = JobTable(CLOCK)
    lines = [
        job_line(**RUNNING | {"run_time": run_time}, evaluated=at(evaluated), scheduler=scheduler)
        for run_time, evaluated, scheduler in [
            ("00:00:59", 10, "Main"),
            ("00:01:00", 15, "Main"),
            ("1-00:00:00", 20, "Backfill:*"),
            ("1-00:00:05", 25, "Main"),
        ]
    ]
    jobs = [table.update(section(line)).jobs[0] for line in lines]
    assert all(job is jobs[0] for job in jobs)


def test_a_name_that_looks_like_a_counter_hides_no_change() -> None:
    table = JobTable(CLOCK)
    evil = f"x RunTime=1 SubmitTime=t.1 LastSchedEval={'t.1'} Scheduler=x"
    before = table.update(section(job_line(name=evil))).jobs[0]
    after = table.update(section(job_line(name=evil, reason="Resources", priority="5"))).jobs[0]
    assert (before.held, after.held, after.reason) == (True, False, "Resources")


def test_an_array_keeps_the_tasks_that_have_not_changed() -> None:
    table = JobTable(CLOCK)
    first = table.update(section(job_line(raw="9", array="ArrayJobId=9 ArrayTaskId=0-3 "))).jobs
    second = table.update(
        section(
            job_line(raw="10", array="ArrayJobId=9 ArrayTaskId=0 "),
            job_line(raw="9", array="ArrayJobId=9 ArrayTaskId=1-3 "),
        )
    ).jobs
    assert [job.key.job_id for job in second] == ["9_0", "9_1", "9_2", "9_3"]
    assert all(after is before for after, before in zip(second[1:], first[1:], strict=True))


def test_jobs_that_are_gone_are_forgotten() -> None:
    table = JobTable(CLOCK)
    table.update(section(job_line(raw="1"), job_line(raw="2")))
    assert phases(table.update(section(job_line(raw="2")))) == {"2": Phase.PENDING}
    assert (len(table), table.knows(1), table.knows(2)) == (1, False, True)


def test_thousands_of_jobs_cost_nothing_the_second_time() -> None:
    text = ScontrolText(CLOCK, pending=600, running=400, nodes=200)
    table = JobTable(CLOCK)
    nodes = RowCache(b"NodeName=", parse_node, ticking_in_node)
    first = table.update(text.jobs()), nodes.update(text.node_lines())
    text.tick()
    second = table.update(text.jobs()), nodes.update(text.node_lines())
    assert (len(first[0].jobs), len(first[1])) == (1000, 200)
    assert all(after is before for after, before in zip(second[0].jobs, first[0].jobs, strict=True))
    assert all(after is before for after, before in zip(second[1], first[1], strict=True))


def test_rows_change_come_and_go() -> None:
    cache = RowCache(b"NodeName=", parse_node, ticking_in_node)
    first = cache.update(section(node_line("n1"), node_line("n2")))
    second = cache.update(section(node_line("n1", load="9.99"), node_line("n2", state="DOWN"), node_line("n3")))
    assert second[0] is first[0]
    assert [node.available for node in second] == [True, False, True]
    assert cache.update(b"No nodes in the system\n") == ()


def test_of_several_rows_with_one_name_the_first_counts() -> None:
    cache = RowCache(b"NodeName=", parse_node, ticking_in_node)
    text = section(node_line("n1", more=" Reason=the check failed:"), node_line("n1", state="DOWN"), node_line("n2"))
    for reading in (text, text, section(node_line("n2"))):
        rows = cache.update(reading)
    assert [node.name for node in rows] == ["n2"]
    assert [(node.name, node.available) for node in cache.update(text)] == [("n1", True), ("n2", True)]


NODES = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["n1", "n2", "n3"]),
            st.sampled_from(["IDLE", "DOWN"]),
            st.sampled_from(["0.1", "9.1", "12"]),
        ),
        unique_by=lambda node: node[0],
    ),
    max_size=6,
)


@settings(max_examples=200)
@given(NODES)
def test_rows_are_those_of_the_text_and_the_same_objects_while_only_loads_change(
    readings: list[list[tuple[str, str, str]]],
) -> None:
    cache = RowCache(b"NodeName=", parse_node, ticking_in_node)
    before: dict[str, SlurmNode] = {}
    for nodes in readings:
        text = section(*(node_line(name, state=state, load=load) for name, state, load in nodes))
        rows = cache.update(text)
        assert rows == RowCache(b"NodeName=", parse_node, ticking_in_node).update(text)
        for row in rows:
            assert row is before.get(row.name, row) or row != before[row.name]
        before = {row.name: row for row in rows}


def test_a_space_where_a_value_ticks_begins_another_field() -> None:
    cache = RowCache(b"NodeName=", parse_node, ticking_in_node)
    line = node_line(load="abcd State=DOWN")
    spoilt = cache.update(section(line.replace(" State=DOWN", "_State=DOWN")))
    assert spoilt[0].available
    assert cache.update(section(line))[0] == parse_node(line)


# ---- line breaks in texts that users choose


READINGS = st.lists(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["a", "b\nc"])), max_size=12), max_size=6)


@settings(max_examples=200)
@given(READINGS)
def test_a_reading_depends_on_its_own_text_alone(readings: list[list[tuple[int, str]]]) -> None:
    """Jobs come, go, change places, appear twice, and have line breaks in their names."""
    table = JobTable(CLOCK)
    for jobs in readings:
        text = section(*(job_line(raw=str(raw), name=name) for raw, name in jobs))
        after, alone = table.update(text), JobTable(CLOCK).update(text)
        assert sorted(job.key.job_id for job in after.jobs) == sorted(job.key.job_id for job in alone.jobs)
        assert {job.key: job for job in after.jobs} == {job.key: job for job in alone.jobs}
        assert after.contested == alone.contested


def test_a_line_break_in_a_name_puts_its_neighbours_in_doubt() -> None:
    table = JobTable(CLOCK)
    lines = [job_line(raw="1"), job_line(raw="2", name="a\nb"), job_line(raw="3"), job_line(raw="4")]
    reading = table.update(section(*lines))
    assert phases(reading) == {"4": Phase.PENDING}
    assert reading.contested == {1, 2, 3}


def test_a_name_that_looks_like_another_job_makes_none() -> None:
    table = JobTable(CLOCK)
    evil = job_line(raw="2", name="a\nJobId=77 JobName=b")
    reading = table.update(section(job_line(raw="1"), evil, job_line(raw="3")))
    assert set(phases(reading)) == {"3"}
    assert reading.contested == {1, 2, 77}


def test_a_path_that_looks_like_another_job_makes_none() -> None:
    table = JobTable(CLOCK)
    evil = job_line(
        raw="2", workdir=f"/x StdErr=/x StdIn=/x StdOut=/x Power= \n{job_line(raw='77', submit='t.1')}\nJobId=78 x"
    )
    reading = table.update(section(job_line(raw="1"), evil, job_line(raw="3"), job_line(raw="4")))
    assert set(phases(reading)) == {"1", "4"}
    assert reading.contested == {2, 3, 77, 78}


@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize(
    "lines",
    [
        [job_line(raw="1", name="a\nJobId=3 JobName=b"), job_line(raw="2"), job_line(raw="3", user="eve")],
        [job_line(raw="3", user="eve"), job_line(raw="2"), job_line(raw="1", name="a\nJobId=3 JobName=b")],
    ],
)
def test_the_id_of_a_true_job_can_neither_be_taken_nor_put_in_doubt(lines: list[str], read_before: bool) -> None:
    table = JobTable(CLOCK)
    if read_before:
        table.update(section(job_line(raw="1"), job_line(raw="2"), job_line(raw="3", user="eve")))
    reading = table.update(section(*lines))
    assert [job.user for job in reading.jobs if job.key.job_id == "3"] == ["eve"]
    assert 1 in reading.contested
    assert 3 not in reading.contested


def test_a_job_that_seems_to_be_there_twice_is_read_alone() -> None:
    table = JobTable(CLOCK)
    lines = [job_line(raw="1"), job_line(raw="3"), job_line(raw="2"), job_line(raw="3", priority="7")]
    for _ in range(2):
        reading = table.update(section(*lines))
        assert (set(phases(reading)), reading.contested) == ({"1", "2"}, frozenset({3}))
    table.update(section(*lines[:3]))
    reading = table.update(section(*lines))
    assert (set(phases(reading)), reading.contested) == ({"1", "2"}, frozenset({3}))


def test_doubt_ends_with_the_text() -> None:
    table = JobTable(CLOCK)
    table.update(section(job_line(raw="1"), job_line(raw="2", name="a\nb")))
    reading = table.update(section(job_line(raw="1"), job_line(raw="2", name="ab")))
    assert (set(phases(reading)), reading.contested) == ({"1", "2"}, frozenset())


def test_doubtful_text_in_which_only_counters_change_is_the_same_object() -> None:
    table = JobTable(CLOCK)

    def look(run_time: str, evaluated: int, scheduler: str, reason: str) -> bytes:
        line = job_line(
            raw="2",
            name="a\nb RunTime=7 x",
            run_time=run_time,
            evaluated=at(evaluated),
            scheduler=scheduler,
            reason=reason,
        )
        return table.update(section(job_line(raw="1"), line)).doubtful

    first = look("00:00:01", 1, "Main", "Priority")
    assert first
    assert look("1-00:00:02", 2, "Backfill:*", "Priority") == first
    assert look("1-00:00:02", 2, "Backfill:*", "Resources") != first


def test_a_job_that_is_not_understood_does_not_take_others_with_it() -> None:
    reading = JobTable(CLOCK).update(section(job_line(raw="1"), job_line(raw="2", num_cpus="many"), job_line(raw="3")))
    assert set(phases(reading)) == {"1", "3"}
    assert reading.contested == {2}


# ---- jobs that are read alone


def test_an_answer_may_hold_line_breaks() -> None:
    (record,) = parse_answer(section(job_line(raw="2", name="a\nJobId=77 JobName=b", comment="x\n\ny")), "2", CLOCK)
    (job,) = record.jobs
    assert (job.key.job_id, job.name, job.comment) == ("2", "a\nJobId=77 JobName=b", "x\n\ny")


def test_an_answer_holds_all_of_an_array() -> None:
    lines = [
        job_line(raw="10", array="ArrayJobId=9 ArrayTaskId=0 "),
        job_line(raw="9", array="ArrayJobId=9 ArrayTaskId=1,2 "),
    ]
    records = parse_answer(section(*lines), "9_1", CLOCK)
    assert [job.key.job_id for record in records for job in record.jobs] == ["9_0", "9_1", "9_2"]


def test_an_answer_for_one_job_never_describes_another() -> None:
    assert parse_answer(section(job_line(raw="77")), "2", CLOCK) == []
    assert parse_answer(b"", "2", CLOCK) == []


def test_jobs_that_are_not_understood_are_reported() -> None:
    heard: list[str] = []
    answer = section(job_line(raw="2", num_cpus="many"))
    assert parse_answer(answer, "2", CLOCK, lambda job_id, problem: heard.append(f"{job_id}: {problem}")) == []
    assert heard == ["2: not a number: 'many'"]


def test_an_admin_comment_in_any_encoding_is_kept() -> None:
    line = job_line(admin_comment="caf?", comment="caf?").encode().replace(b"caf?", b"caf\xe9")
    (job,) = JobTable(CLOCK).update(line + b"\n").jobs
    assert job.admin_comment.encode("utf-8", "surrogateescape") == b"caf\xe9"
    assert job.comment == r"caf\xe9"


def test_a_number_of_any_length_in_a_users_text_costs_no_reading() -> None:
    # Given a job whose comment has a line break, and behind it what looks like a job with an id of thousands of digits
    table = JobTable(CLOCK)
    made_up = f"a\nJobId={'9' * 5000} JobName=b\nJobId=0 x"  # scontrol would show all jobs for the id 0
    text = section(job_line(raw="1"), job_line(raw="2", comment=made_up), job_line(raw="3"))
    # When all jobs are read, then those around it are read one by one, and no other
    assert table.update(text).contested == {2, 3}
    assert phases(table.update(text)) == {"1": Phase.PENDING}


class CountingTable(JobTable):
    """Counts the lines that it looks at around those without a submit time."""

    looked_at = 0

    def _around(self, number: int, lines: list[bytes]) -> range:
        around = super()._around(number, lines)
        self.looked_at += len(around)
        return around


@pytest.mark.parametrize("text", ["\nx", "\n", "\nJobId=5 x", "\nNo jobs in the system", "\nx\nNo jobs in the system"])
def test_thousands_of_line_breaks_cost_a_look_at_each_line(text: str) -> None:
    table = CountingTable(CLOCK)
    lines = section(job_line(raw="5", name="a" + text * 4000), job_line(raw="6"), job_line(raw="7"))
    for _ in range(2):
        table.looked_at = 0
        assert "7" in phases(table.update(lines))
        assert 0 < table.looked_at < 3 * len(lines.split(b"\n"))


class EachLineAlone(JobTable):
    """The rule in its plain form: each line without a submit time puts its whole run in doubt."""

    def _doubtful_lines(self, changed, section, entries):  # type: ignore[no-untyped-def]
        doubtful = super()._doubtful_lines(changed, section, entries)
        lines = section.split(b"\n")
        for number, _, line in changed:
            if not line.startswith(b"JobId=") or line.count(self._submit) != 1:
                doubtful.update(self._around(number, lines))
        return doubtful


BREAKS = st.sampled_from(
    [
        "",
        "x",
        "a\nb",
        "a\nJobId=3 JobName=y",
        "\n\n",
        "q\nNo jobs in the system",
        "\nx\ny\nz",
        "No jobs in the system\n",
    ]
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(1, 9), BREAKS, BREAKS), min_size=1, max_size=8), max_size=3))
def test_a_run_of_lines_is_in_doubt_as_if_each_were_looked_at_alone(queues: list[list[tuple[int, str, str]]]) -> None:
    table, plain = JobTable(CLOCK), EachLineAlone(CLOCK)
    for jobs in queues:
        text = section(*(job_line(raw=str(raw), name=name, comment=comment) for raw, name, comment in jobs))
        assert table.update(text) == plain.update(text)
