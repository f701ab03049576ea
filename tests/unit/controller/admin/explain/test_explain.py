"""The answers of `headway why`: the sentence, and the numbers behind it."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from controller.admin.explain import waiting
from controller.admin.explain.cycle_view import CycleView
from controller.admin.explain.explain import Past, brief, explain
from controller.admin.explain.waiting import policy_text
from controller.base.text import count, duration
from controller.observe.role import Role, Standing
from controller.slurm.model.cluster import SlurmReservation
from controller.slurm.model.job import JobKey, NodeShare, Phase
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.state.journal import RunRecord
from controller.state.ledger import Estimate, Ledger, PinRecord, Refusal, Served
from tests.unit.controller.examples.build import NOW_S, job, node, request, running
from tests.unit.controller.examples.cycle_views import scene, some, undecided

FIFO = "policy fifo orders by time of submission, and lets no job pass the first"
FULL = {"n1": 8, "n2": 8, "n3": 8, "n4": 8}


def wants(**changes):
    return request(**changes)


def waits(*busy, policy="fifo", nodes=4, **changes):
    """The sentence for job 9, which waits beside these running jobs."""
    found = explain(scene(*busy, job("9", **changes), policy=policy, nodes=nodes), "9", NOW_S)
    assert found.state == "waiting"
    return found.sentence


def held(number, where, **changes):
    return running(str(number), on=where, **changes)


# --- waiting


@pytest.mark.parametrize(
    ("busy", "wanted", "expected"),
    [
        (
            {"n1": 8, "n2": 8, "n3": 3, "n4": 4},
            wants(gpus_per_node=8),
            "Needs 8 GPUs on one node; at most 5 GPUs are free for it on one node (n3).",
        ),
        (
            FULL,
            wants(gpus_per_node=1),
            "Needs 1 GPU on one node; no GPU is free for it on the 4 nodes that it may use.",
        ),
        (
            {"n1": 8, "n2": 8, "n3": 4, "n4": 5},
            wants(gpus_per_node=4, min_nodes=2, max_nodes=2),
            "Needs 4 GPUs on each of 2 nodes; of the 4 nodes that it may use, one has 4 GPUs free for it, "
            "and 2 such nodes are needed.",
        ),
        (
            {"n1": 7, "n2": 7, "n3": 7, "n4": 7},
            wants(gpus_per_job=16),
            "Needs 16 GPUs in equal parts on 2 to 4 nodes; of the 4 nodes that it may use, none has 8 GPUs free for it.",
        ),
        (
            {"n1": 4, "n2": 4, "n3": 4, "n4": 4},
            wants(gpus_per_job=16),
            "Needs 16 GPUs in equal parts on 2 to 4 nodes; it would fit now, but only on more nodes than the 2 that it needs.",
        ),
        (
            {"n1": 8, "n2": 8, "n3": 4, "n4": 1},
            wants(gpus_per_job=13),
            "Needs 13 GPUs on 2 nodes or more; 11 GPUs are free for it on the 4 nodes that it may use.",
        ),
    ],
)
def test_a_waiting_job_shows_what_it_needs_and_what_is_free(busy, wanted, expected):
    jobs = [held(number, {name: gpus}) for number, (name, gpus) in enumerate(busy.items(), start=1)]
    sentence = waits(*jobs, request=wanted)
    assert sentence.startswith(expected + " It is the first in the order; " + FIFO), sentence


def test_a_waiting_job_shows_which_jobs_are_before_it_and_by_which_rule():
    # given a full cluster and three jobs that are shorter than the fourth
    jobs = [held(n, {name: 8}) for n, name in enumerate(FULL, start=1)]
    line = [job(str(n), submit=999_000 + n, time_limit_s=60.0 * n) for n in range(11, 14)]
    last = job("20", submit=998_000, time_limit_s=9000.0)
    # when it asks
    found = explain(scene(*jobs, *line, last, policy="srtf"), "20", NOW_S)
    # then
    assert "3 jobs are ahead of it; policy srtf orders by remaining time, shortest first." in found.sentence
    assert some(
        found.facts, "queue_position", "jobs_ahead", "jobs_waiting", "policy", "estimate_source", "estimate_s"
    ) == {
        "queue_position": "4",
        "jobs_ahead": "3",
        "jobs_waiting": "4",
        "policy": "srtf",
        "estimate_source": "time limit",
        "estimate_s": "9000",
    }


@pytest.mark.parametrize(
    ("policy", "order", "expected"),
    [
        (
            "backfill",
            "slurm",
            "by tier of their partition, then by Slurm's priority (order=slurm), and lets jobs pass the first",
        ),
        ("srtf", "tier", "by tier of their partition (order=tier), within a tier by remaining time, shortest first."),
        ("srtf", "own", "by remaining time, shortest first."),
    ],
)
def test_the_order_in_force_is_named(policy, order, expected):
    shot = scene(held(1, {"n1": 8}), job("8"), job("9"), policy=policy, options={"order": order}, nodes=1)
    found = explain(shot, "8", NOW_S)
    assert f"; policy {policy} orders {expected}" in found.sentence
    assert found.facts["ordered_by"] in found.sentence


def test_no_priority_is_shown_where_slurm_has_only_an_order():
    jobs = SimpleNamespace(slurm_priority=np.array([-1.0, 17.0, np.nan]), partition_tier=np.array([1, 1, 1]))
    view = SimpleNamespace(ordered_by="", state=SimpleNamespace(jobs=jobs))
    assert [waiting._order_facts(view, row).get("slurm_priority") for row in range(3)] == [None, "17", None]


def test_a_policy_of_another_package_is_named_with_its_reason():
    found = explain(scene(held(1, {"n1": 8}), job("9", request=wants(gpus_per_node=8)), by="mine", nodes=1), "9", NOW_S)
    assert "; policy mine decides the order." in found.sentence
    assert found.sentence.endswith(
        "The policy's reason: first in the queue; waits until enough GPUs are free for it, and no later job starts before it."
    )


def test_a_state_outside_of_the_range_of_the_policys_training_is_shown():
    shot = scene(held(1, {"n1": 8}), job("9", request=wants(gpus_per_node=8)), by="mine", nodes=1)
    beyond = "1 of 2 jobs request 8 GPUs (trained: 1 to 4)"
    decided = replace(shot.result.decided, plan=replace(shot.result.decided.plan, outside=beyond))
    shot.result = replace(shot.result, decided=decided)
    found = explain(shot, "9", NOW_S)
    assert found.sentence.endswith(f" The policy's weights were not trained on such a state: {beyond}.")
    assert found.facts["outside_trained_range"] == beyond


def test_a_job_that_the_policy_was_not_shown_says_so():
    shot = scene(held("1", FULL), *(job(str(number), submit=999_000 + number) for number in range(7, 11)))
    plan = replace(shot.result.decided.plan, considered=2)
    shot = replaced(shot, plan)
    shown, beyond = explain(shot, "8", NOW_S), explain(shot, "9", NOW_S)
    assert "looks at no others" not in shown.sentence and "beyond_considered" not in shown.facts
    assert beyond.sentence.endswith(" It is behind the first 2 waiting jobs, and the policy looks at no others.")
    assert some(beyond.facts, "beyond_considered", "queue_position") == {
        "beyond_considered": "2",
        "queue_position": "3",
    }


def replaced(shot, plan):
    result = replace(shot.result, decided=replace(shot.result.decided, plan=plan))
    return CycleView(result, shot.ledger, shot.partitions)


def test_the_fallback_is_named_with_the_reason_why_it_decides():
    shot = scene(held(1, {"n1": 8}), job("9"), by="fallback:fifo", problem="policy server x: no answer", nodes=1)
    found = explain(shot, "9", NOW_S)
    assert "the fallback policy fifo orders by" in found.sentence
    assert found.facts["fallback_because"] == "policy server x: no answer"


def test_a_job_that_fits_is_shown_as_fitting():
    blocked = job("8", submit=990_000, request=wants(gpus_per_node=8, min_nodes=4, max_nodes=4))
    sentence = waits(held(1, {"n1": 8}), blocked, request=wants(gpus_per_node=2))
    assert "it fits now (n2). 1 job is ahead of it; " + FIFO in sentence


def test_what_is_short_beside_gpus_is_named():
    full_of_cpus = held(1, {"n1": 1}, request=wants(gpus_per_node=1, num_cpus=60))
    assert "enough GPUs are free, but not enough CPUs on the same nodes" in waits(
        full_of_cpus, nodes=1, request=wants(gpus_per_node=4, num_cpus=8)
    )
    full_of_memory = held(1, {"n1": 1}, request=wants(gpus_per_node=1, memory_mib_per_node=255_000))
    assert "but not enough memory on the same nodes" in waits(
        full_of_memory, nodes=1, request=wants(gpus_per_node=4, memory_mib_per_node=8000)
    )


def test_an_exclusive_job_needs_empty_nodes():
    sentence = waits(held(1, {"n1": 1}), nodes=1, exclusive=True, request=wants(gpus_per_node=8))
    assert sentence.startswith(
        "Needs 8 GPUs on one node, with no other job on it; no GPU is free for it on the only node"
    )


@pytest.mark.parametrize(
    ("nodes", "changes", "expected"),
    [
        ((node("n1", available=False, state="DOWN"),), {}, "the only node that it may use is down or drained"),
        (
            (node("n1", available=False), node("n2", available=False), node("n3", features=frozenset({"x"}))),
            {"request": wants(gpus_per_node=1, excluded_nodes=("n3",))},
            "all 2 nodes that it may use are down or drained",
        ),
        (
            (node("n1", gpus=4), node("n2", available=False)),
            {"request": wants(gpus_per_node=8)},
            "it would not fit on its eligible nodes that are up, even if they were empty",
        ),
    ],
)
def test_a_job_that_fits_on_no_node_is_explained(nodes, changes, expected):
    assert expected in waits(nodes=nodes, **changes)


def test_the_numbers_of_a_waiting_job():
    ledger = Ledger(estimates={("ann", "train"): Estimate(1200.0, 90.0, 5)})
    shot = scene(held(1, {"n1": 6}), job("9", request=wants(gpus_per_node=8, required_nodes=("n1",))), ledger=ledger)
    found = explain(shot, "9", NOW_S)
    assert some(
        found.facts,
        "num_gpus",
        "shape",
        "free_gpus",
        "free_gpus_total",
        "largest_free",
        "nodes_allowed",
        "division",
        "fits_now",
    ) == {
        "num_gpus": "8",
        "shape": "8 GPUs on one node",
        "free_gpus": "n1:2",
        "free_gpus_total": "2",
        "largest_free": "2 (n1)",
        "nodes_allowed": "1",
        "division": "1 x 8",
        "fits_now": "no",
    }
    assert some(found.facts, "estimate_s", "estimate_spread_s", "estimate_source") == {
        "estimate_s": "1200",
        "estimate_spread_s": "90",
        "estimate_source": "past runs of the same user and job name",
    }
    assert found.facts["wait_s"] == "1000"
    assert re.fullmatch(r"[0-9a-f]{16,}", found.facts["snapshot_digest"])
    assert found.key == JobKey("9", 999_000)


def test_a_job_for_which_another_is_stopped_by_slurms_rules_says_which():
    shot = scene(held(1, {"n1": 8}), job("9", request=wants(gpus_per_node=8)), nodes=1)
    decided = shot.result.decided
    room = {shot.rows[JobKey("9", 999_000)]: "job 1 is saved and stopped for it: QOS high preempts low"}
    shot.result = replace(shot.result, decided=replace(decided, plan=replace(decided.plan, making_room=room)))
    found = explain(shot, "9", NOW_S)
    assert found.sentence.endswith(" Job 1 is saved and stopped for it: QOS high preempts low.")
    assert "policy's reason" not in found.sentence


def test_two_thousand_nodes_do_not_fill_the_answer():
    found = explain(undecided(job("9"), nodes=200), "9", NOW_S)
    assert found.facts["free_gpus"].count(",") == 31
    assert "No decision has been made on it yet." in found.sentence


# --- on the way


def placed(restarts=0, at_s=NOW_S - 2, policy="srtf", reason="best fit"):
    return PinRecord(("n1", "n2"), (4, 4), restarts, at_s, policy, reason)


def test_a_job_placed_by_this_very_cycle_is_starting():
    # given a cycle that placed the job, and a ledger that has learned of the pin since
    waiting = job("9", request=wants(gpus_per_node=4, min_nodes=2, max_nodes=2))
    shot = scene(waiting, job("10", submit=999_500, request=wants(gpus_per_node=8)), policy="fifo", nodes=2)
    shot.ledger.pins[waiting.key] = placed(policy="fifo")
    # then it starts, and the next in line sees what it took
    assert explain(shot, "9", NOW_S).sentence == (
        "Placed on n1:4,n2:4 by policy fifo 2 s ago (best fit); Slurm is starting it."
    )
    assert explain(shot, "10", NOW_S).facts["free_gpus"] == "n1:4,n2:4"


def test_a_job_that_takes_the_place_of_others_says_by_which_rule():
    waiting = job("9", request=wants(gpus_per_node=4, min_nodes=2, max_nodes=2))
    shot = scene(waiting, policy="fifo", nodes=2)
    rule = "job 1 is stopped by Slurm for it: QOS high preempts low"
    shot.ledger.pins[waiting.key] = placed(policy="Slurm's rules of preemption", reason=rule)
    assert explain(shot, "9", NOW_S).sentence == (
        f"Placed on n1:4,n2:4 by Slurm's rules of preemption 2 s ago ({rule}); Slurm is starting it."
    )


def test_a_job_that_this_cycle_could_not_pin_is_shown_as_refused():
    shot = scene(job("9"))
    shot.ledger.refusals[JobKey("9", 999_000)] = Refusal("could not be pinned: no", NOW_S, NOW_S + 10, 2)
    found = explain(shot, "9", NOW_S + 4)
    assert found.state == "ineligible"
    assert found.sentence == (
        "Cannot be placed yet: it was placed, but not started, 2 times so far: could not be pinned: no; next attempt in 6 s."
    )
    assert some(found.facts, "refusals", "next_try_in_s") == {"refusals": "2", "next_try_in_s": "6"}


def test_a_job_that_was_not_tried_names_the_job_whose_refusal_stands_for_it():
    shot = scene(job("9"))
    why = "Slurm refuses it: AssocGrpGRES"
    refusal = Refusal(why, NOW_S, NOW_S + 10, 1, like="8", slurm_reason="AssocGrpGRES")
    shot.ledger.refusals[JobKey("9", 999_000)] = refusal
    assert explain(shot, "9", NOW_S + 4).sentence == (
        "Cannot be placed yet: Slurm would refuse it as it refused job 8 (AssocGrpGRES); next attempt in 6 s."
    )


def test_a_released_job_shows_slurms_reason():
    ledger = Ledger(pins={JobKey("9", 999_000): placed()})
    found = explain(scene(job("9", held=False, reason="Resources"), ledger=ledger), "9", NOW_S)
    assert found.state == "starting"
    assert found.sentence.endswith("Slurm is starting it (Slurm: PENDING, Resources).")


def test_a_running_job_shows_since_when_where_and_by_which_policy():
    key = JobKey("9", 999_000)
    job9 = held(9, {"n1": 4, "n2": 4}, since=NOW_S - 7200)
    found = explain(scene(job9, ledger=Ledger(pins={key: placed()})), "9", NOW_S)
    assert found.state == "running"
    assert re.fullmatch(
        r"Runs on n1:4,n2:4 since \S+ \S+ \(for 2 h\), placed by policy srtf: best fit\.", found.sentence
    ), found.sentence
    assert some(found.facts, "placement", "placed_by", "wait_s") == {
        "placement": "n1:4,n2:4",
        "placed_by": "srtf",
        "wait_s": "0",
    }


def test_a_run_after_a_requeue_is_not_credited_to_an_old_placement():
    ledger = Ledger(pins={JobKey("9", 999_000): placed(restarts=0)})
    assert (
        "placed by Slurm itself" in explain(scene(held(9, {"n1": 8}, restarts=1), ledger=ledger), "9", NOW_S).sentence
    )


def test_a_requeued_job_whose_run_is_still_ending_was_not_placed_by_slurm():
    ledger = Ledger(pins={JobKey("9", 999_000): placed(restarts=0)})
    ending = held(9, {"n1": 8}, restarts=1, phase=Phase.COMPLETING)
    shot = scene(ending, ledger=ledger)
    assert explain(shot, "9", NOW_S).sentence == "Ending: it still occupies n1:8; then it is placed again."
    assert brief(shot, ending, Standing(Role.RUNNING), NOW_S) == "its run is ending; then it is placed again"
    over = held(9, {"n1": 8}, phase=Phase.COMPLETING)
    assert brief(scene(over, ledger=ledger), over, Standing(Role.RUNNING), NOW_S) == "its run is ending"


def test_a_job_that_is_about_to_be_held_is_not_shown_as_placed_by_slurm():
    shot = scene(job("9", held=False, reason="BeginTime", restarts=1))
    entry = shot.find("9")
    assert entry is not None
    assert shot.standing(entry).role is Role.ADOPT
    expected = brief(shot, entry, Standing(Role.ADOPT), NOW_S)
    assert expected.startswith("is in Slurm's queue and not held yet; Headway takes it into its own queue next")
    assert expected.endswith("(Slurm: PENDING, BeginTime)")
    assert explain(shot, "9", NOW_S).sentence == f"I{expected[1:]}."


def test_a_task_of_a_throttled_array_waits_for_its_siblings():
    shot = scene(job("9"))
    why, said = "Slurm refuses it: JobArrayTaskLimit", "JobArrayTaskLimit"
    shot.ledger.refusals[JobKey("9", 999_000)] = Refusal(why, NOW_S, NOW_S + 10, 2, slurm_reason=said)
    assert explain(shot, "9", NOW_S + 4).sentence == (
        "Cannot be placed yet: as many tasks of its array run as its user allows at once (Slurm: JobArrayTaskLimit); "
        "next attempt in 6 s."
    )


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.CONFIGURING, "Starting: Slurm prepares n1:8 for it; placed by Slurm itself."),
        (Phase.COMPLETING, "Ending: it still occupies n1:8."),
        (Phase.SUSPENDED, "Suspended by Slurm; it keeps its GPUs on n1:8."),
    ],
)
def test_the_phases_of_a_run(phase, expected):
    found = explain(scene(held(9, {"n1": 8}, phase=phase)), "9", NOW_S)
    assert (found.state, found.sentence) == ("running", expected)


# --- not to be placed, not ours, not any more


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"admin_comment": f"{HOLD_MARK} {USER_HOLD_MARK}"}, "held by its user; `scontrol release`"),
        ({"admin_comment": ""}, "held by its user; `scontrol release`"),
        (
            {"admin_comment": "", "reason": "JobHeldAdmin"},
            "held by an operator (JobHeldAdmin), not by Headway; an operator can release it",
        ),
        (
            {"admin_comment": "", "reason": "job_requeued_in_held_state"},
            "held since it was requeued (job_requeued_in_held_state), not by Headway; `scontrol release`",
        ),
        ({"dependency": "afterok:4(unfulfilled)"}, "waits for other jobs (afterok:4(unfulfilled))"),
        ({"request": wants(gpus_per_node=16)}, "asks for more GPUs on a node than any node has (8)"),
    ],
)
def test_a_job_that_may_not_be_placed_yet_shows_why(changes, expected):
    found = explain(scene(job("9", **changes), job("4")), "9", NOW_S)
    assert found.state == "ineligible"
    assert found.sentence.startswith(f"Cannot be placed yet: {expected}")
    assert "placement" not in found.facts


def test_a_begin_time_is_shown_as_a_time():
    found = explain(scene(job("9", eligible_time_s=NOW_S + 7200)), "9", NOW_S)
    assert re.search(r"its begin time is \S+ \S+ \(in 2 h\)\.$", found.sentence)


def test_a_run_that_ends_by_a_requeue_is_not_taken_for_a_placement_of_slurm():
    # Given a job of which Slurm counts one more restart while its old run ends
    ending = held(9, {"n1": 8}, phase=Phase.COMPLETING, restarts=1)
    shot = scene(ending, ledger=Ledger(pins={ending.key: placed(restarts=0)}))

    assert brief(shot, ending, shot.standing(ending), NOW_S) == "its run is ending; then it is placed again"


def test_a_job_given_to_slurm_shows_why():
    ledger = Ledger(yielded={JobKey("9", 999_000): 0})
    shot = undecided(job("9", held=False, reason="Priority", admin_comment=""), ledger=ledger)
    found = explain(shot, "9", NOW_S, Past(given_to_slurm="asks for nodes by --constraint=[a|b]"))
    assert found.state == "yielded"
    assert found.sentence == (
        "Slurm places it, not Headway: asks for nodes by --constraint=[a|b] (Slurm: PENDING, Priority)."
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"partition": "cpu"}, "Headway does not manage partition cpu (it manages dl)"),
        ({"partition": "dl,cpu"}, "Headway does not manage partition dl,cpu"),
        ({"request": wants()}, "it asks for no GPUs"),
        (
            {"request": wants(gpus_per_socket=2)},
            "it asks for GPUs by socket (--gpus-per-socket), which only Slurm places",
        ),
        ({"batch": False}, "it is interactive (salloc or srun)"),
        ({"het_job_id": 3}, "it is part of a heterogeneous job"),
    ],
)
def test_a_job_out_of_scope_shows_which_rule_applies(changes, expected):
    found = explain(scene(job("9", held=False, reason="Priority", **changes)), "9", NOW_S)
    assert found.state == "unmanaged"
    assert found.sentence.startswith(f"Slurm schedules it, not Headway: {expected}")
    assert found.sentence.endswith("(Slurm: PENDING, Priority).")


def test_an_ended_job_shows_how_it_ended():
    ended = {"phase": Phase.ENDED, "held": False, "end_time_s": NOW_S - 60}
    ran = job("9", state="COMPLETED", start_time_s=NOW_S - 3660, allocated=(NodeShare("n1", 8, 0, 8, 0),), **ended)
    never = job("10", state="CANCELLED", **ended)
    shot = scene(ran, never)
    assert explain(shot, "9", NOW_S).sentence == "Ended (COMPLETED) 60 s ago after running for 60 min on n1:8."
    assert explain(shot, "10", NOW_S).sentence == "Ended (CANCELLED) 60 s ago without having run."
    assert explain(shot, "9", NOW_S).state == "ended"


def test_an_ended_job_has_the_time_of_its_runs_before_a_requeue():
    ended = {"phase": Phase.ENDED, "held": False, "end_time_s": NOW_S - 60}
    on = (NodeShare("n1", 8, 0, 8, 0),)
    jobs = [
        job("9", state="COMPLETED", start_time_s=NOW_S - 3660, allocated=on, **ended),
        job("10", state="CANCELLED", start_time_s=NOW_S - 60, **ended),
        job("11", state="CANCELLED", start_time_s=NOW_S - 7260, **ended),
    ]
    served = {each.key: Served(7200.0, 57_600.0, 0, last_start_s=NOW_S - 7260) for each in jobs}
    shot = scene(*jobs, ledger=Ledger(served=served))
    says = [explain(shot, each.key.job_id, NOW_S).sentence.removeprefix("Ended ") for each in jobs]
    assert says == [
        "(COMPLETED) 60 s ago after running for 3 h, last on n1:8.",
        "(CANCELLED) 60 s ago after running for 2 h.",  # in the queue
        "(CANCELLED) 60 s ago after running for 2 h.",  # while it left its nodes for the queue
    ]


def test_a_job_that_slurm_forgot_is_found_in_the_journal():
    run = RunRecord(JobKey("9", 1), "ann", "train", 100.0, NOW_S - 7200, 300.0, 16, 2, "TIMEOUT")
    found = explain(scene(), "9", NOW_S, Past(run=run))
    assert found.sentence == "Ended (TIMEOUT) 2 h ago after running for 5 min on 16 GPUs of 2 nodes."
    assert found.key == run.key
    assert found.facts["end_time_s"] == f"{NOW_S - 7200:.0f}"


@pytest.mark.parametrize(
    ("num_gpus", "ran"),
    [
        (1, "after running for 12 h (162 GPU hours), last on 1 GPU of 1 node"),
        (0, "after running for 12 h (162 GPU hours)"),
    ],
)
def test_a_forgotten_job_that_was_resized_shows_its_gpu_hours(num_gpus, ran):
    hour_s = 3600.0
    run = RunRecord(
        JobKey("9", 1), "ann", "train", 100.0, NOW_S - 7200, 12 * hour_s, num_gpus, num_gpus, "TIMEOUT", 162 * hour_s
    )
    found = explain(scene(), "9", NOW_S, Past(run=run))
    assert found.sentence == f"Ended (TIMEOUT) 2 h ago {ran}."
    assert found.facts["gpu_s"] == "583200"


def test_only_an_ended_job_that_has_run_was_placed_by_slurm():
    ended = {"phase": Phase.ENDED, "held": False, "end_time_s": NOW_S - 60}
    # Slurm gives a job that is cancelled while it waits its end as the start
    jobs = {"8": {"start_time_s": NOW_S - 120}, "9": {"start_time_s": NOW_S - 60}, "10": {}}
    shot = scene(*(job(key, state="CANCELLED", **ended, **changes) for key, changes in jobs.items()))
    past = Past(given_to_slurm="no policy could decide")
    says = [explain(shot, key, NOW_S, past).sentence for key in jobs]
    assert says[0].endswith(" Slurm placed it, not Headway: no policy could decide.")
    assert says[1:] == ["Ended (CANCELLED) 60 s ago without having run."] * 2


@pytest.mark.parametrize("start_s", [None, NOW_S - 60])
def test_a_forgotten_job_that_never_ran_was_not_placed(start_s):
    run = RunRecord(JobKey("9", 1), "ann", "train", start_s, NOW_S - 60, 0.0, 0, 0, "CANCELLED")
    found = explain(scene(), "9", NOW_S, Past(run=run, given_to_slurm="no policy could decide"))
    assert found.sentence == "Ended (CANCELLED) 60 s ago without having run."


def test_times_are_shown_as_finely_as_slurm_shows_them():
    ended = {"phase": Phase.ENDED, "held": False, "end_time_s": 1_700_000_000.25}
    assert explain(scene(job("9", state="COMPLETED", **ended)), "9", NOW_S).facts["end_time_s"] == "1700000000.25"


def test_an_unknown_job_has_no_explanation():
    assert explain(scene(job("9")), "10", NOW_S) is None


def test_of_two_jobs_with_one_id_the_newer_is_explained():
    old = job("9", submit=990_000, phase=Phase.ENDED, state="NODE_FAIL", held=False)
    assert explain(scene(old, job("9", submit=999_500)), "9", NOW_S).state in {"waiting", "starting"}


# --- arrays


def test_an_array_is_explained_as_a_whole_with_the_task_that_comes_next():
    tasks = [
        held("12_1", {"n1": 8}, array_job_id=12),
        job("12_2", array_job_id=12, request=wants(gpus_per_node=8)),
        job("12_10", array_job_id=12, request=wants(gpus_per_node=8)),
        job("12_3", array_job_id=12, phase=Phase.ENDED, state="COMPLETED", held=False),
    ]
    found = explain(scene(*tasks, job("120_1"), nodes=1), "12", NOW_S)
    assert found.state == "array"
    assert found.sentence.startswith(
        "An array of 4 tasks: 1 running, 2 waiting, 1 ended. Next is 12_2: needs 8 GPUs on one node; "
    )
    assert some(found.facts, "tasks", "tasks_waiting", "next_task") == {
        "tasks": "4",
        "tasks_waiting": "2",
        "next_task": "12_2",
    }
    assert explain(scene(*tasks, nodes=1), "12_10", NOW_S).state == "waiting"


# --- the queue's lines


def test_every_line_of_the_queue_has_a_reason():
    held_back = job("8", dependency="afterok:3")
    shot = scene(held(1, {"n1": 8}), job("9", request=wants(gpus_per_node=8)), held_back, nodes=1)
    lines = {entry.key.job_id: brief(shot, entry, found, NOW_S) for entry, found in shot.jobs()}
    assert lines["1"] == "placed by Slurm itself"
    assert lines["9"].startswith("needs 8 GPUs on one node; no GPU is free")
    assert lines["8"]


def test_waiting_is_counted_from_the_first_submission():
    ledger = Ledger(served={JobKey("9", 999_900): Served(service_s=300.0, gpu_s=300.0, first_submit_s=999_000)})
    shot = scene(job("9", submit=999_900, restarts=1), ledger=ledger)
    assert shot.wait_s(shot.find("9"), NOW_S) == 700.0


# --- words


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (3600, "60 min"),
        (7500, "2 h 5 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_durations(seconds, expected):
    assert duration(seconds) == expected


def test_counts_and_policies():
    assert (count(1, "job"), count(2, "job")) == ("1 job", "2 jobs")
    assert policy_text("fallback:fifo") == "the fallback policy fifo"


@pytest.mark.parametrize(
    "one", [job("9", comment="x headway=fast+preemptible"), held(9, {"n1": 1}, comment="headway=fast")]
)
def test_options_that_are_not_understood_are_reported(one):
    sentence = explain(scene(one), "9", NOW_S).sentence
    assert "unknown options (fast): Headway knows off, preemptible" in sentence


def test_known_options_are_not_mentioned():
    assert "unknown options" not in waits(comment="my run headway=preemptible+min-gpus:2")


def test_a_job_that_avoids_refused_nodes_shows_which_and_for_how_long():
    shot = scene(job("9"))
    why = "Slurm did not start it within 10 s (Resources)"
    refusal = Refusal(why, NOW_S, NOW_S + 10, 2, unfit="n1,n2", places=2)
    shot.ledger.refusals[JobKey("9", 999_000)] = refusal
    assert explain(shot, "9", NOW_S + 4).sentence == (
        f"Cannot be placed yet: it was placed, but not started, 2 times so far: {why}; next attempt in 6 s, "
        "and is not placed on n1, n2 for another 10 min."
    )


def test_a_waiting_job_shows_the_nodes_that_it_avoids():
    ledger = Ledger(
        refusals={JobKey("9", 999_000): Refusal("no room", NOW_S - 60, NOW_S - 50, 1, unfit="n1", places=1)}
    )
    everything = wants(gpus_per_node=8, min_nodes=2, max_nodes=2)
    first, blocked = job("8", request=everything, submit=998_000), job("9", request=everything)
    sentence = explain(scene(first, blocked, ledger=ledger, policy="fifo", nodes=2), "9", NOW_S).sentence
    assert "It is the first in the order" in sentence
    assert "It was refused 1 time, and is not placed on n1 for another 9 min." in sentence


def test_what_slurm_calls_impossible_is_shown_without_useless_advice():
    found = explain(scene(job("9", reason="BadConstraints", admin_comment="")), "9", NOW_S)
    assert found.state == "yielded"
    assert found.sentence == (
        "Slurm has put it on hold, because no nodes can ever run it with its present request (Slurm: PENDING, BadConstraints). "
        "What to do: `scancel 9`, and submit it with a request that fits the nodes."
    )


def test_nodes_that_will_be_reserved_are_named() -> None:
    nodes = frozenset(f"n{number}" for number in range(1, 5))
    coming = SlurmReservation("upgrade", nodes, NOW_S + 3600, NOW_S + 7200)
    wanted = wants(gpus_per_node=1)
    found = explain(scene(job("9", request=wanted, time_limit_s=7200.0), reservations=(coming,)), "9", NOW_S)
    assert "its nodes are reserved (upgrade) in 60 min, and its time limit is 2 h: with a --time that ends before" in (
        found.sentence
    )
    found = explain(scene(job("9", request=wanted, time_limit_s=None), reservations=(coming,)), "9", NOW_S)
    assert "and it has no time limit" in found.sentence
    now = SlurmReservation("exam", nodes, NOW_S - 60, NOW_S + 600)
    found = explain(scene(job("9", request=wanted, time_limit_s=60.0), reservations=(coming, now)), "9", NOW_S)
    assert "its nodes are reserved (exam) for another 10 min" in found.sentence
    # a reservation elsewhere is no reason, nor one of nodes with which the job would not fit either
    elsewhere = SlurmReservation("exam", frozenset({"n1"}), NOW_S - 60, NOW_S + 600)
    full = [held(n, {f"n{n}": 8}) for n in range(1, 5)]
    found = explain(scene(*full, job("9", request=wanted), reservations=(elsewhere,)), "9", NOW_S)
    assert "exam" not in found.sentence
    large = wants(gpus_per_node=9)
    found = explain(scene(job("9", request=large), reservations=(elsewhere,)), "9", NOW_S)
    assert "exam" not in found.sentence


@pytest.mark.parametrize("begin_s", [-60.0, 30 * 86400.0])
def test_a_reservation_of_other_nodes_is_not_why_a_job_waits_for_a_node_that_is_down(begin_s: float) -> None:
    others = SlurmReservation("course", frozenset({"cpu77"}), NOW_S + begin_s, NOW_S + begin_s + 86400)
    down = (node("n1", available=False, state="DOWN"),)
    found = explain(scene(job("9", time_limit_s=None), nodes=down, reservations=(others,)), "9", NOW_S)
    assert "the only node that it may use is down or drained" in found.sentence
    # also when the node that is down is itself reserved: it would not start without the reservation
    same = replace(others, nodes=frozenset({"n1"}))
    found = explain(scene(job("9", time_limit_s=None), nodes=down, reservations=(same,)), "9", NOW_S)
    assert "reserved" not in found.sentence
