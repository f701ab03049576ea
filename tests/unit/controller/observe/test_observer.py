"""Cluster states that policies read, from Slurm's snapshots."""

from dataclasses import replace

import numpy as np
import pytest

from controller.observe.observer import Observer
from controller.observe.role import Role
from controller.slurm.model.cluster import SlurmReservation
from controller.slurm.model.job import JobKey, Phase
from controller.state.ledger import Estimate, Ledger, PinRecord, Served
from policies.model import EstimateSource, JobState, Placement, Split
from tests.unit.controller.examples.build import NOW_S, job, node, request, running, snapshot

DL = frozenset({"dl"})


def observe(shot, ledger=None):
    return Observer().observe(shot, ledger or Ledger(), DL)


def test_jobs_come_in_order_of_submission_and_ids_by_number():
    seen = observe(snapshot(job("10"), job("9"), job("12_11"), job("12_2"), job("3", submit=999_500)))
    assert seen.state.jobs.ids == ("9", "10", "12_2", "12_11", "3")
    assert [entry.key.job_id for entry in seen.rows] == list(seen.state.jobs.ids)


def test_a_running_job_holds_its_placement_and_its_service():
    seen = observe(snapshot(running("1", on={"n2": 4, "n1": 8}), job("2")))
    jobs = seen.state.jobs
    assert jobs.placement(0) == Placement((0, 1), (8, 4))
    assert jobs.state.tolist() == [JobState.RUNNING, JobState.PENDING]
    assert jobs.service_s.tolist() == [100.0, 0.0]
    assert jobs.attained_gpu_s[0] == 100.0 * jobs.num_gpus[0]
    assert not jobs.preemptible.any()


@pytest.mark.parametrize(
    ("phase", "served", "last_start_s", "service_s"),
    [
        (Phase.RUNNING, 100.0, None, 200.0),
        (Phase.COMPLETING, 100.0, None, 100.0),
        (Phase.COMPLETING, 130.0, None, 130.0),
        (Phase.COMPLETING, 130.0, NOW_S - 100, 130.0),
        pytest.param(Phase.COMPLETING, 130.0, NOW_S - 500, 230.0, id="it ends without a requeue"),
    ],
)
def test_the_run_of_a_requeued_job_that_is_completing_counts_once(phase, served, last_start_s, service_s):
    # given a job that has run for 100 s, and whose run the ledger counts, because its restart count has risen
    leaving = running("1", on={"n1": 8}, phase=phase, state=phase.name, restarts=1)
    ledger = Ledger(served={leaving.key: Served(served, 8 * served, 999_000, last_start_s=last_start_s)})
    jobs = observe(snapshot(leaving), ledger).state.jobs
    assert (jobs.service_s.tolist(), jobs.attained_gpu_s.tolist()) == ([service_s], [8 * service_s])


def test_a_starting_job_holds_what_it_was_pinned_to():
    starting = job("1", held=False, reason="None", start_time_s=NOW_S - 5000)
    ledger = Ledger()
    ledger.pins[starting.key] = PinRecord(("n3",), (1,), 0, NOW_S, "fifo", "")
    seen = observe(snapshot(starting), ledger)
    assert seen.state.jobs.placement(0) == Placement((2,), (1,))
    assert np.isnan(seen.state.jobs.start_time_s[0])
    assert seen.state.jobs.service_s[0] == 0.0


def test_foreign_jobs_only_occupy_nodes():
    foreign = running("1", on={"n1": 3}, batch=False)
    seen = observe(snapshot(foreign, job("2")))
    assert seen.state.nodes.foreign_gpus.tolist() == [3, 0, 0, 0]
    assert seen.state.jobs.ids == ("2",)


def test_ineligible_jobs_are_not_shown_to_policies():
    unmet = job("1", dependency="afterok:9(unfulfilled)")
    seen = observe(snapshot(unmet, job("2", admin_comment=""), job("9", admin_comment="")))
    assert len(seen.state.jobs) == 0
    assert {found.role for found in seen.standings.values()} == {Role.INELIGIBLE}


def test_pending_jobs_that_slurm_may_start_are_to_be_adopted():
    free = job("1", held=False, reason="Priority", admin_comment="")
    assert observe(snapshot(free)).to_adopt == (free.key,)


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({}, [True, True, True, True]),
        ({"features": "a100"}, [True, True, False, False]),
        ({"features": "a100&ib"}, [True, False, False, False]),
        ({"features": "ib|v100"}, [True, False, True, True]),
        ({"request": request(gpus_per_node=1, excluded_nodes=("n1", "n2"))}, [False, False, True, True]),
        ({"request": request(gpus_per_node=1, required_nodes=("n4",))}, [False, False, False, True]),
        ({"request": request(gpus_per_node=1, gpu_type="a100")}, [True, True, False, False]),
    ],
)
def test_a_job_may_use_only_the_nodes_that_its_request_allows(change, allowed):
    nodes = (
        node("n1", features=frozenset({"a100", "ib"}), gpu_type="a100"),
        node("n2", features=frozenset({"a100"}), gpu_type="a100"),
        node("n3", features=frozenset({"v100"})),
        node("n4", features=frozenset({"v100"})),
    )
    state = observe(snapshot(job("1", **change), nodes=nodes)).state
    row = state.jobs.node_set[0]
    mask = [True] * 4 if row < 0 else state.node_sets[row].tolist()
    assert mask == allowed


def test_policies_see_the_qos_of_each_job():
    jobs = observe(
        snapshot(running("1", on={"n1": 8}, qos="normal"), job("2", qos="high"), job("3"), job("4", qos="normal"))
    ).state.jobs
    assert dict(zip(jobs.ids, map(jobs.qos_of, range(4)), strict=True)) == {
        "1": "normal",
        "2": "high",
        "3": "",
        "4": "normal",
    }


def test_without_accounting_there_is_no_column_of_qos():
    jobs = observe(snapshot(job("1"), job("2"))).state.jobs
    assert (jobs.qos, jobs.qos_names) == (None, None)


def test_a_changed_qos_is_seen_and_those_of_past_jobs_are_forgotten(monkeypatch):
    monkeypatch.setattr("controller.observe.observer._MOST_QOS", 4)
    observer = Observer()
    for number in range(6):
        jobs = observer.observe(snapshot(job("1", qos=f"q{number}")), Ledger(), frozenset({"dl"})).state.jobs
        assert jobs.qos_of(0) == f"q{number}"
        assert len(jobs.qos_names) <= 5


def test_demands_of_past_jobs_are_forgotten(monkeypatch):
    monkeypatch.setattr("controller.observe.observer._MOST_DEMANDS", 5)
    observer = Observer()
    kept = []
    for number in range(1, 30):  # each excludes a node that is not there: the node set is the same
        asks = job(str(number), request=request(gpus_per_node=1, excluded_nodes=(f"gone{number}",)))
        observer.observe(snapshot(asks), Ledger(), DL)
        kept.append(observer._nodes.eligible.kept)
    assert max(kept) == 6


@pytest.mark.parametrize("features", ["[a|b]", "a*2", "(a&b)|c", "a&b|c"])
def test_what_only_slurm_can_place_is_given_to_slurm(features):
    asks = job("1", features=features)
    seen = observe(snapshot(asks))
    assert list(seen.to_yield) == [asks.key]
    assert features in seen.to_yield[asks.key]


def test_a_node_list_that_must_be_filled_up_with_other_nodes_is_given_to_slurm():
    asks = job("1", request=request(gpus_per_node=1, min_nodes=2, max_nodes=2, required_nodes=("n1",)))
    assert list(observe(snapshot(asks)).to_yield) == [asks.key]


@pytest.mark.parametrize(("nodes", "given"), [(2, True), (1, False)])
def test_a_job_that_asks_for_several_nodes_near_each_other_is_given_to_slurm(nodes, given):
    asks = job("1", by_topology="--switches=1", request=request(gpus_per_node=1, min_nodes=nodes, max_nodes=nodes))
    assert list(observe(snapshot(asks)).to_yield) == [asks.key] * given


TWO_NODES = request(gpus_per_node=4, min_nodes=2, max_nodes=2)
ONLY_SLURM = [
    {"by_topology": "--switches=1", "request": TWO_NODES},
    {"features": "[a|b]", "request": TWO_NODES},
    {"request": replace(TWO_NODES, required_nodes=("n2",))},
    {"by_topology": "--switches=1", "request": request(gpus_per_job=16, num_tasks=16)},
    {"features": "[a|b]", "request": request(gpus_per_job=8, num_tasks=8)},
]


@pytest.mark.parametrize("odd", ONLY_SLURM)
def test_what_only_slurm_can_place_stays_as_it_runs(odd):
    # given a job of a request that only Slurm can place, which could be resized but for that
    comment = "headway=preemptible+min-gpus:1+max-gpus:32"
    here = {"n2": 8, "n3": 8} if (odd["request"].gpus_per_job or 16) == 16 else {"n2": 4, "n3": 4}
    odd = running("1", on=here, comment=comment, **odd)
    seen = observe(snapshot(odd, running("2", on={"n1": 1})))
    # then policies see one size and its own nodes, and the reason is known
    jobs, number = seen.state.jobs, int(seen.state.jobs.node_set[0])
    assert (jobs.min_gpus, jobs.max_gpus) == (None, None)
    assert seen.state.node_sets[number].tolist() == [False, True, True, False]
    assert list(seen.only_slurm) == [odd.key]
    assert "asks for" in seen.only_slurm[odd.key]


def test_reservations_are_kept_for_their_jobs():
    held = SlurmReservation("exam", frozenset({"n1", "n2"}), NOW_S - 10, NOW_S + 10_000)
    inside, outside = job("1", reservation="exam"), job("2")
    state = observe(snapshot(inside, outside, reservations=(held,))).state
    assert state.node_sets[state.jobs.node_set[0]].tolist() == [True, True, False, False]
    assert state.node_sets[state.jobs.node_set[1]].tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("change", "drawn"),
    [
        ({}, True),
        ({"request": request(gpus_per_job=2, max_nodes=1)}, True),
        ({"request": request(gpus_per_job=2)}, False),
        ({"request": request(gpus_per_node=1, min_nodes=2)}, False),
        ({"user": "bob"}, False),
        ({"account": "other"}, False),
        ({"reservation": "exam"}, False),
    ],
)
def test_a_magnetic_reservation_takes_jobs_of_its_users_that_do_not_request_it(change, drawn):
    course = SlurmReservation(
        "course", frozenset({"n1"}), NOW_S - 10, NOW_S + 10_000, True, frozenset({"ann"}), frozenset({"lab"})
    )
    exam = SlurmReservation("exam", frozenset({"n1", "n2"}), NOW_S - 10, NOW_S + 10_000)
    asks = job("1", **({"account": "lab"} | change))
    others = (exam,) if asks.reservation else ()
    state = observe(snapshot(asks, reservations=(course, *others))).state
    row = int(state.jobs.node_set[0])
    assert (row < 0 or bool(state.node_sets[row, 0])) is drawn


@pytest.mark.parametrize(("limit_s", "drawn"), [(9_000.0, True), (10_000.0, False), (None, False)])
@pytest.mark.parametrize("only_shorter", [True, False])
def test_on_26_05_a_magnetic_reservation_takes_only_jobs_that_end_before_it(limit_s, drawn, only_shorter):
    course = SlurmReservation(
        "course",
        frozenset({"n1"}),
        NOW_S - 10,
        NOW_S + 10_000,
        True,
        frozenset({"ann"}),
        draws_only_shorter=only_shorter,
    )
    state = observe(snapshot(job("1", time_limit_s=limit_s), reservations=(course,))).state
    row = int(state.jobs.node_set[0])
    assert (row < 0 or bool(state.node_sets[row, 0])) is (drawn or not only_shorter)


@pytest.mark.parametrize(
    "course",
    [
        SlurmReservation("course", frozenset({"n1"}), NOW_S - 10, NOW_S + 10_000, False, frozenset({"ann"})),
        SlurmReservation("course", frozenset({"n1"}), NOW_S + 10, NOW_S + 10_000, True, frozenset({"ann"})),
        SlurmReservation("course", frozenset({"n1"}), NOW_S - 10, NOW_S + 10_000, True, frozenset({"-bob"})),
        SlurmReservation("course", frozenset({"n1"}), NOW_S - 10, NOW_S + 10_000, True),
    ],
)
def test_other_reservations_keep_jobs_off_that_do_not_request_them(course):
    state = observe(snapshot(job("1"), reservations=(course,))).state
    assert not state.node_sets[state.jobs.node_set[0], 0]


def test_a_job_of_several_reservations_is_given_to_slurm():
    held = [
        SlurmReservation(name, frozenset({node}), NOW_S - 10, NOW_S + 10_000)
        for name, node in (("a", "n1"), ("b", "n2"))
    ]
    asks = job("1", reservation="a,b")
    seen = observe(snapshot(asks, job("2", reservation="a"), reservations=tuple(held)))
    assert dict(seen.to_yield) == {asks.key: "requests one of several reservations (a,b)"}


def test_a_short_job_may_use_nodes_of_a_later_reservation():
    later = SlurmReservation("exam", frozenset({"n1"}), NOW_S + 5000, NOW_S + 10_000)
    short, long = job("1", time_limit_s=600.0), job("2", time_limit_s=6000.0)
    state = observe(snapshot(short, long, reservations=(later,))).state
    assert state.jobs.node_set[0] == -1
    assert not state.node_sets[state.jobs.node_set[1], 0]


def test_estimates_come_from_past_runs_else_from_the_time_limit():
    known, unknown, unlimited = job("1", name="bert"), job("2"), job("3", time_limit_s=None)
    ledger = Ledger(estimates={("ann", "bert"): Estimate(120.0, 7.0, 4)})
    jobs = observe(snapshot(known, unknown, unlimited), ledger).state.jobs
    assert jobs.duration_estimate_s[:2].tolist() == [120.0, 3600.0]
    assert np.isnan(jobs.duration_estimate_s[2])
    assert jobs.estimate_source.tolist() == [EstimateSource.HISTORY, EstimateSource.TIME_LIMIT, EstimateSource.UNKNOWN]
    assert jobs.duration_spread_s[0] == 7.0


def test_an_estimate_never_exceeds_the_time_limit():
    ledger = Ledger(estimates={("ann", "train"): Estimate(9999.0, 7.0, 4)})
    assert observe(snapshot(job("1")), ledger).state.jobs.duration_estimate_s[0] == 3600.0


def test_a_requeued_job_keeps_its_place_in_line_and_its_service():
    requeued, newer = job("1", submit=999_900, restarts=1), job("2", submit=999_100)
    ledger = Ledger(served={requeued.key: Served(50.0, 400.0, 999_000)})
    jobs = observe(snapshot(newer, requeued), ledger).state.jobs
    assert jobs.ids == ("1", "2")
    assert jobs.submit_time_s[0] == 999_000
    assert (jobs.service_s[0], jobs.attained_gpu_s[0]) == (50.0, 400.0)


@pytest.mark.parametrize(
    ("served_s", "remaining_s"),
    [
        (0.0, 3500.0),
        (1000.0, 2500.0),  # it saves, and continues: the limit of one run bounds all of its work, as far as is known
        (3600.0, 3500.0),  # it reached the limit once, and Slurm ends its present run an hour after the start of it
        (3550.0, 3500.0),  # both runs together have reached it
        (9 * 3600.0, 3500.0),
    ],
)
def test_a_time_limit_is_that_of_one_run(served_s, remaining_s):
    again = running("1", on={"n1": 8}, restarts=1)
    ledger = Ledger(served={again.key: Served(served_s, 8 * served_s, 999_000)})
    assert observe(snapshot(again), ledger).state.remaining_s.tolist() == [remaining_s]


def test_an_estimate_from_past_runs_may_exceed_the_time_limit_by_what_earlier_runs_took():
    waits = job("1", restarts=1)
    ledger = Ledger(
        estimates={("ann", "train"): Estimate(9999.0, 7.0, 4)}, served={waits.key: Served(3600.0, 3600.0, 999_000)}
    )
    assert observe(snapshot(waits), ledger).state.remaining_s.tolist() == [3600.0]


def test_the_original_request_counts_not_what_headway_made_of_it():
    pinned = job("1", request=request(gpus_per_node=6, min_nodes=2, max_nodes=2, required_nodes=("n1", "n2")))
    ledger = Ledger(originals={pinned.key: request(gpus_per_job=12)})
    jobs = observe(snapshot(pinned), ledger).state.jobs
    assert (jobs.num_gpus[0], jobs.split[0], jobs.node_set[0]) == (12, Split.EVEN, -1)


def test_observing_the_same_jobs_twice_gives_the_same_columns():
    observer, shot = Observer(), snapshot(running("1", on={"n1": 2}), job("2"), job("3", features="x"))
    first = observer.observe(shot, Ledger(), DL).state
    second = observer.observe(shot, Ledger(), DL).state
    assert second.sequence == first.sequence + 1
    for name in ("num_gpus", "node_set", "cpus_per_gpu", "placement_node"):
        assert np.array_equal(getattr(first.jobs, name), getattr(second.jobs, name))


def test_a_changed_node_is_noticed():
    observer = Observer()
    asks = job("1", features="ib")
    assert observer.observe(snapshot(asks), Ledger(), DL).to_yield
    nodes = (node("n1", features=frozenset({"ib"})),)
    assert observer.observe(snapshot(asks, nodes=nodes), Ledger(), DL).state.jobs.node_set[0] == -1


@pytest.mark.parametrize(
    "asked",
    [
        request(gpus_per_node=9),
        request(gpus_per_job=33),
        request(gpus_per_node=8, min_nodes=5, max_nodes=5),
        request(gpus_per_node=1, gpu_type="h100"),
        request(gpus_per_node=1, num_cpus=65),
        request(gpus_per_node=2, memory_mib_per_node=300_000),
    ],
)
def test_a_job_that_can_never_start_is_left_to_slurm(asked):
    big = job("1", request=asked)
    seen = observe(snapshot(big))
    assert list(seen.to_yield) == [big.key]
    assert "asks for more" in seen.to_yield[big.key]


def test_a_reservation_that_has_not_begun_is_waited_for():
    later = SlurmReservation("exam", frozenset({"n1"}), NOW_S + 5000, NOW_S + 10_000)
    early = job("1", reservation="exam")
    seen = observe(snapshot(early, reservations=(later,)))
    assert not seen.to_yield


def test_completing_jobs_still_hold_their_nodes():
    ending = running("1", on={"n1": 8}, phase=Phase.COMPLETING)
    assert observe(snapshot(ending)).state.jobs.placement(0) == Placement((0,), (8,))


def test_every_job_in_scope_is_known_by_its_key():
    seen = observe(snapshot(job("1"), job("2", phase=Phase.ENDED, state="COMPLETED")))
    assert set(seen.jobs) == {JobKey("1", 999_000), JobKey("2", 999_000)}
