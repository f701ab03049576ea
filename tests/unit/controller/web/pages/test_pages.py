"""The contents of each page, as pure functions of an answer."""

from __future__ import annotations

import pytest
from headway_client import Explanation, JobSummary, NodeUse, Queue, QueueEntry, ReportedRun, SizeWaits, Status
from headway_client.words import JobState

from controller.base.job_sizes import quantile
from controller.web.pages.contention import pairs
from controller.web.pages.job import WIDTH, facts, timeline
from controller.web.pages.nodes import racks
from controller.web.pages.overview import health, partition_uses, pending_by_reason
from controller.web.pages.placements import colour, parse
from controller.web.pages.queue import PAGE, Filter, parse_filter, queue_page
from controller.web.pages.waits import wait_rows


def node(name: str, used: int, *partitions: str, available: bool = True, rack: str = "") -> NodeUse:
    return NodeUse(name, 8, used, available, "MIXED", partitions, rack)


def entry(job_id: str, state: str = "running", gpus: int = 8, **more: object) -> QueueEntry:
    return QueueEntry(job_id=job_id, state=JobState(state), num_gpus=gpus, **more)  # type: ignore[arg-type]


def test_a_node_counts_in_each_of_its_partitions_and_only_in_service_for_gangs() -> None:
    nodes = (node("a", 0, "gpu"), node("b", 3, "gpu", "big"), node("c", 0, "big", available=False))
    gpu, big, empty = partition_uses(Status(partitions=("gpu", "big", "empty"), nodes=nodes))

    assert (gpu.free, gpu.free_on_one, gpu.empty_nodes, gpu.available, gpu.nodes) == (13, 8, 1, 2, 2)
    assert (big.free, big.free_on_one, big.empty_nodes, big.available, big.nodes) == (5, 5, 0, 1, 2)
    assert (empty.free, empty.gpus) == (0, 0)


def test_pending_jobs_are_counted_by_reason() -> None:
    queue = Queue(
        (entry("1", "waiting", 8, waits_for="for GPUs"), entry("2", "waiting", 4, waits_for="for GPUs"), entry("3"))
    )

    assert [(row.why, row.jobs, row.gpus) for row in pending_by_reason(queue)] == [("for GPUs", 2, 12)]


@pytest.mark.parametrize(
    ("checked_s", "silent", "shown"),
    [
        (0.0, False, []),
        (990.0, False, [("checked 10 s ago", True)]),
        (400.0, True, [("checked 10 min ago", False)]),
        (0.0, True, [("has not checked", False)]),
    ],
)
def test_the_health_has_the_watchdog_where_one_is_needed(
    checked_s: float, silent: bool, shown: list[tuple[str, bool]]
) -> None:
    parts = health(Status(watchdog_time_s=checked_s, watchdog_silent=silent), 1000.0, "1 s")

    assert [(part.state, part.good) for part in parts if part.name == "Watchdog"] == shown


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n1:8,n2:4", [("n1", 8), ("n2", 4)]),
        ("", []),
        ("n1", [("n1", 0)]),
        ("a:b:2", [("a:b", 2)]),
        (":3", [(":3", 0)]),
    ],
)
def test_placements_are_read_whatever_they_are(text: str, found: list[tuple[str, int]]) -> None:
    assert parse(text) == found


def test_neighbouring_jobs_have_different_colours() -> None:
    assert len({colour(str(number)) for number in range(100, 112)}) == 12
    assert colour("") == 0


def test_gpus_of_jobs_that_are_not_shown_are_other() -> None:
    status = Status(nodes=(node("n10", 6, rack="r"), node("n2", 8, rack="r"), node("x", 0)))
    found = racks(status, Queue((entry("1", placement="n10:4", user="ann"),)))

    assert [rack.name for rack in found] == ["r", ""]
    second, first = found[0].boxes
    assert (second.node.name, first.node.name) == ("n2", "n10")
    assert [(share.kind, share.gpus) for share in first.shares] == [("job", 4), ("other", 2), ("free", 2)]
    assert [(share.kind, share.gpus) for share in second.shares] == [("other", 8)]


def test_pages_of_the_queue_keep_the_place_of_waiting_jobs() -> None:
    queue = Queue(tuple(entry(str(n), "waiting", 1, user="ann" if n % 2 else "bob") for n in range(1, 2 * PAGE + 3)))
    first, last = (queue_page(queue, Filter(user="ann", page=page)) for page in (1, 9))

    assert (first.pages, first.chosen, len(first.rows)) == (2, PAGE + 1, PAGE)
    assert (first.rows[1][0], first.rows[1][1].job_id) == (3, "3")
    assert [row.job_id for _, row in last.rows] == [str(2 * PAGE + 1)]
    assert Filter(user="a&b", page=1).query(2) == "user=a%26b&page=2"


@pytest.mark.parametrize("query", [{"page": "-1"}, {"page": "1" * 7}, {"state": "x"}, {"user": "u" * 257}])
def test_a_filter_that_means_nothing_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="give"):
        parse_filter(query)


def test_quantiles_are_values_that_occurred() -> None:
    assert quantile([], 0.5) is None
    assert [quantile([5, 1, 3], share) for share in (0.0, 0.5, 0.95)] == [1, 3, 5]
    rows = wait_rows(
        Queue((entry("1", gpus=3, wait_s=60), entry("2", "waiting", 4, wait_s=9), entry("3", gpus=999, wait_s=1)))
    )
    assert [(row.size, row.started_p50_s, row.waiting_p95_s) for row in rows] == [
        ("3 to 4 GPUs", 60, 9),
        ("more than 128 GPUs", 1, None),
    ]


def test_waits_of_ended_jobs_have_their_columns() -> None:
    ended = (
        SizeWaits(most_gpus=4, jobs=9, p50_s=30.0, p95_s=90.0),
        SizeWaits(most_gpus=0, jobs=1, p50_s=5.0, p95_s=5.0),
    )
    rows = wait_rows(Queue((entry("1", gpus=3, wait_s=60),)), ended)

    assert [(row.size, row.ended, row.ended_p50_s, row.ended_p95_s, row.started) for row in rows] == [
        ("3 to 4 GPUs", 9, 30.0, 90.0, 1),
        ("more than 128 GPUs", 1, 5.0, 5.0, 0),
    ]
    assert wait_rows(Queue((entry("1", wait_s=60),)))[0].ended_p50_s is None


@pytest.mark.parametrize(
    ("placement", "shared"), [("n3:4,n2:8", ("n2", "n3")), ("n7:8", ()), ("", ())], ids=["nodes", "links", "unknown"]
)
def test_a_pair_names_the_nodes_that_both_have(placement: str, shared: tuple[str, ...]) -> None:
    first = entry("1", beside=("2",), placement="n1:8,n2:4,n3:4")
    (pair,) = pairs(Queue((first, entry("2", placement=placement))))
    (hidden,) = pairs(Queue((first,)))

    assert (pair.shared_nodes, hidden.shared_nodes) == (shared, None)


def test_a_pair_is_listed_once_also_where_one_job_is_hidden() -> None:
    queue = Queue((entry("1", beside=("2", "9"), slowdown=1.2), entry("2", beside=("1",), slowdown=1.7)))
    (first, second) = pairs(queue)

    assert (first.first.job_id, first.second_id, first.worst) == ("1", "2", 1.7)
    assert (second.second_id, second.second) == ("9", None)


def test_the_timeline_has_waits_and_runs_without_gaps() -> None:
    runs = (ReportedRun(start_s=1010.0, end_s=1050.0, placement="n1:8"), ReportedRun(start_s=1060.0))
    report = JobSummary(submit_time_s=1000.0, state=JobState.RUNNING, runs=runs, service_s=80.0)
    spans = timeline(report, 1100.0)

    assert [(span.kind, span.x, span.width) for span in spans] == [
        ("waits", 0, 100), ("runs", 100, 400), ("waits", 500, 100), ("runs", 600, 400),
    ]  # fmt: skip
    assert sum(span.width for span in spans) == WIDTH
    assert [span.kind for span in timeline(JobSummary(submit_time_s=1000.0), 1100.0)] == ["waits"]
    assert timeline(JobSummary(), 1100.0) == []


def test_facts_of_a_job_have_times_durations_and_units() -> None:
    times, others = facts(
        Explanation(
            facts={
                "submit_time_s": "1700000000", "wait_s": "5400", "estimate_s": "86400", "gpu_s": "7200", "restarts": "0",
                "throughput_steps_per_s": "2.5", "estimate_source": "user", "snapshot_digest": "ab", "free_gpus": "",
            }
        )
    )  # fmt: skip

    assert times == [("submit time", 1_700_000_000.0)]
    assert others == [
        ("estimate", "24 h"), ("estimate source", "user"), ("GPU time", "2 GPU hours"), ("restarts", "0"),
        ("throughput", "2.5 steps/s"), ("wait", "1 h 30 min"),
    ]  # fmt: skip
