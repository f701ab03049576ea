"""`headway top` shows the right jobs and lines of an answer."""

from controller.cli.top.screen import COLUMNS, Choice, Order, header, rows
from protos.headway.v1 import admin_pb2 as pb

JOBS = [
    pb.QueueEntry(job_id="1", user="ann", name="bert", state="running", num_gpus=4, wait_s=5, placement="n1:4"),
    pb.QueueEntry(job_id="2", user="bob", name="gpt", state="waiting", num_gpus=8, wait_s=90, why="waits for 8 GPUs"),
    pb.QueueEntry(job_id="3", user="ann", name="vit", state="waiting", num_gpus=1, wait_s=400, why="waits for n2"),
]


def ids(choice):
    return [entry.job_id for entry in choice.of_jobs(JOBS)]


def test_each_order_and_filter_chooses_its_jobs():
    assert ids(Choice()) == ["1", "2", "3"]
    assert ids(Choice(order=Order.WAIT)) == ["3", "2", "1"]
    assert ids(Choice(order=Order.GPUS)) == ["2", "1", "3"]
    assert ids(Choice(order=Order.USER)) == ["1", "3", "2"]
    assert ids(Choice(user="ann")) == ["1", "3"]
    assert ids(Choice(states=frozenset({"waiting"}))) == ["2", "3"]
    assert ids(Choice(text="N1")) == ["1"]
    assert ids(Choice(text="gpu", user="ann")) == []


def test_the_orders_follow_each_other_in_a_circle():
    choice, seen = Choice(), []
    for _ in Order:
        seen.append(choice.order)
        choice = choice.with_next_order()
    assert (set(seen), choice) == (set(Order), Choice())


def test_the_sentence_says_what_is_left_out():
    choice = Choice(user="ann", states=frozenset({"starting", "running"}), text="n1")
    text = choice.sentence(chosen=9, shown=5, jobs=20)
    assert text == '5 of 9 jobs, the policy\'s order, user ann, state running or starting, with "n1", 11 filtered out'


def test_the_header_has_what_is_wrong_only_where_something_is():
    status = pb.Status(jobs_waiting=2, gpus_used=4, gpus_total=8)
    assert [name.plain for name, _ in header(status)] == ["policy", "jobs", "gpus"]
    status.lease_time_s, status.lease_stale, status.last_error = 1.0, True, "slurmctld is away"
    wrong = {name.plain: value for name, value in header(status)}
    assert "STALE" in wrong["lease"].plain
    assert (wrong["last error"].plain, wrong["last error"].style) == ("slurmctld is away", "red")


def test_rows_are_bounded_and_show_no_control_characters():
    entry = pb.QueueEntry(job_id="7", name="a\x1b[31m[bold]b", state="waiting", why="x\ny")
    ((job_id, cells),) = rows([entry, *JOBS], limit=1, now_s=0.0)
    texts = dict(zip(COLUMNS, (cell.plain for cell in cells), strict=True))
    assert (job_id, texts["NAME"], texts["WHERE OR WHY"]) == ("7", "a?[31m[bold]b", "x?y")


def test_a_running_job_has_its_steps_before_its_nodes():
    entry = pb.QueueEntry(job_id="1", state="running", placement="n1:4", steps=432, steps_in_all=1000)
    ((_, cells),) = rows([entry], limit=1, now_s=0.0)
    assert cells[-1].plain == "step 432 of 1000 (43%); n1:4"


def test_estimates_of_starts_have_a_column_and_an_order():
    soon = pb.QueueEntry(job_id="8", start=pb.StartEstimate(earliest_s=1_600, median_s=1_900, latest_s=8_200))
    late = pb.QueueEntry(job_id="9", start=pb.StartEstimate(earliest_s=8_200, median_s=9_000))
    entries = [late, *JOBS, soon]
    assert [entry.job_id for entry in Choice(order=Order.START).of_jobs(entries)] == ["8", "9", "1", "2", "3"]
    shown = {job_id: cells[COLUMNS.index("STARTS IN")].plain for job_id, cells in rows(entries, 9, now_s=1_000)}
    assert shown == {"8": "10 min - 2 h", "9": "> 2 h", "1": "", "2": "", "3": ""}
