"""One record of scontrol into a job, whatever its owner wrote into the texts that are theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.base.errors import SlurmReplyError
from controller.observe.observer import Observer
from controller.slurm.model.job import JobKey, NodeShare, Phase, ResourceRequest, SlurmJob
from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.records import JobRecord
from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.scontrol.parse import parse_job
from controller.state.ledger import Ledger
from policies.wire.state import parse_state, serialize_state
from tests.unit.controller.examples.build import node, snapshot
from tests.unit.controller.slurm.scontrol.text import CLOCK, RUNNING, SUBMIT_S, at, job_line


def record(**fields: str) -> JobRecord:
    return parse_job(job_line(**fields), CLOCK)


def job(**fields: str) -> SlurmJob:
    (one,) = record(**fields).jobs
    return one


def test_a_held_job() -> None:
    seen = job()
    assert seen.key == JobKey("7", SUBMIT_S)
    assert (seen.user, seen.name, seen.partition, seen.reason) == ("ann", "train", "dl", "JobHeldUser")
    assert (seen.phase, seen.held, seen.batch, seen.requeue, seen.restarts) == (Phase.PENDING, True, True, True, 0)
    assert (seen.eligible_time_s, seen.start_time_s, seen.end_time_s, seen.time_limit_s) == (None, None, None, None)
    assert (seen.admin_comment, seen.comment, seen.account, seen.features, seen.dependency) == ("", "", "", "", "")
    assert seen.request == ResourceRequest(1, 0, 1, 1, gpus_per_node=2, memory_mib_per_cpu=1000, cpus_per_task=1)
    assert seen.allocated == ()


@pytest.mark.parametrize(
    ("deadline", "least", "limit", "latest_s"),
    [
        ("N/A", "N/A", "00:10:00", None),
        (at(SUBMIT_S + 3600), "N/A", "00:10:00", SUBMIT_S + 3000),
        (at(SUBMIT_S + 3600), "00:05:00", "00:10:00", SUBMIT_S + 3300),
        (at(SUBMIT_S + 3600), "N/A", "UNLIMITED", SUBMIT_S + 3600),
    ],
)
def test_a_deadline_is_kept_by_a_start_before_the_time_limit(
    deadline: str, least: str, limit: str, latest_s: float | None
) -> None:
    line = job_line(time_limit=limit).replace("Deadline=N/A", f"Deadline={deadline}")

    (found,) = parse_job(line.replace("TimeMin=N/A", f"TimeMin={least}"), CLOCK).jobs

    assert found.latest_start_s == latest_s


@pytest.mark.parametrize(
    ("shown", "option"),
    [("", ""), ("Switches=2@00:05:00 ", "--switches=2"), ("SegmentSize=4 ", "--segment=4"), ("Switches=many ", "")],
)
def test_the_option_about_near_nodes_is_behind_the_paths(shown: str, option: str) -> None:
    line = job_line(workdir="/tmp/x Switches=8@1 StdOut=/y")  # text of the user, before the last path
    (found,) = parse_job(line.replace(" Power=", f" {shown}Power="), CLOCK).jobs
    assert found.by_topology == option


def test_a_running_job() -> None:
    seen = job(**RUNNING, time_limit="00:10:00")
    assert (seen.phase, seen.held, seen.time_limit_s) == (Phase.RUNNING, False, 600)
    assert (seen.start_time_s, seen.end_time_s) == (SUBMIT_S + 1, SUBMIT_S + 601)
    assert seen.allocated == (NodeShare("n1", 2, 0b1001, 4, 4000),)


def test_gpus_that_are_numbered_by_type() -> None:
    details = (
        "JOB_GRES=gpu:g0:1,gpu:g1:1,gpu:g2:1   Nodes=n[3-4] CPU_IDs=0,32 Mem=1000 GRES=gpu:g0:1(IDX:0),gpu:g1:0(IDX:),"
        "gpu:g2:1(IDX:2) Nodes=n7 CPU_IDs=0 Mem=500 GRES=gpu:g1:1(IDX:1) "
    )
    seen = job(**RUNNING | {"nodes": "n[3-4,7]", "details": details})
    assert seen.allocated == (
        NodeShare("n3", 2, 0b101, 2, 1000),
        NodeShare("n4", 2, 0b101, 2, 1000),
        NodeShare("n7", 1, 0b010, 1, 500),
    )


def test_gpus_of_a_node_that_has_more_than_a_mask_has_bits() -> None:
    """Sixteen GPUs in seven MIG instances each are 112 for Slurm. Such a job must not stop every cycle."""
    details = "JOB_GRES=gpu:2   Nodes=n1 CPU_IDs=0-3 Mem=4000 GRES=gpu:2(IDX:3,70) "
    seen = job(**RUNNING | {"nodes": "n1", "details": details})
    assert seen.allocated == (NodeShare("n1", 2, 0, 4, 4000),)
    nodes = (node("n1", gpus=112),)
    state = Observer().observe(snapshot(seen, nodes=nodes), Ledger(), frozenset({"dl"})).state
    assert (state.jobs.placement_gpus.tolist(), state.jobs.placement_gpu_mask.tolist()) == ([2], [0])


def test_a_user_whose_name_is_no_utf_8_stops_no_state() -> None:
    seen = job(**RUNNING | {"nodes": "n1", "user": "a\udcffn"})
    state = Observer().observe(snapshot(seen), Ledger(), frozenset({"dl"})).state
    assert parse_state(serialize_state(state)).jobs.users == (r"a\xffn",)


def test_a_job_that_has_a_node_twice_is_not_understood() -> None:
    details = "JOB_GRES=gpu:2   Nodes=n1 CPU_IDs=0-3 Mem=4000 GRES=gpu:2(IDX:0,3) "
    with pytest.raises(SlurmReplyError, match="it has a node twice"):
        job(**RUNNING | {"nodes": "n1", "details": 2 * details})


def test_a_completing_job_holds_the_nodes_that_are_left() -> None:
    details = "JOB_GRES=gpu:a100:6   Nodes=n[1-3] CPU_IDs=0 Mem=1000 GRES= "
    seen = job(
        **RUNNING
        | {"state": "COMPLETING", "nodes": "n2", "details": details, "tres": "cpu=6,mem=3000M,node=3,billing=6"}
    )
    assert (seen.phase, seen.allocated) == (Phase.COMPLETING, (NodeShare("n2", 2, 0, 2, 1000),))


@pytest.mark.parametrize(
    ("state", "nodes", "phase"),
    [
        ("PENDING", "", Phase.PENDING),
        ("REQUEUE_HOLD", "", Phase.PENDING),
        ("SPECIAL_EXIT", "", Phase.PENDING),
        ("CONFIGURING", "n1", Phase.CONFIGURING),
        ("RUNNING", "n1", Phase.RUNNING),
        ("SUSPENDED", "n1", Phase.SUSPENDED),
        ("COMPLETING", "n1", Phase.COMPLETING),
        ("REQUEUED", "n1", Phase.COMPLETING),
        ("NODE_FAIL", "n1", Phase.ENDED),
        ("PREEMPTED", "n1", Phase.ENDED),
        ("OUT_OF_MEMORY", "n1", Phase.ENDED),
        ("CANCELLED", "", Phase.ENDED),
        ("EXPEDITING", "n1", Phase.COMPLETING),
        ("EXPEDITING", "", Phase.COMPLETING),
        ("SOMETHING_NEW", "n1", Phase.COMPLETING),
        ("SOMETHING_NEW", "", Phase.ENDED),
    ],
)
def test_states(state: str, nodes: str, phase: Phase) -> None:
    seen = job(state=state, nodes=nodes)
    assert (seen.state, seen.phase) == (state, phase)
    assert bool(seen.allocated) == (phase.occupies_nodes and bool(nodes))


@pytest.mark.parametrize(
    ("state", "reason", "held"),
    [
        ("SUSPENDED", "None", False),  # `scontrol suspend` sets the priority to 0, until `scontrol resume`
        ("SUSPENDED", "JobHeldAdmin", True),  # held before, while it ran: a requeue leaves it held
        ("RUNNING", "JobHeldAdmin", True),
        ("RUNNING", "None", True),
        ("PENDING", "JobHeldUser", True),
    ],
)
def test_priority_0_is_a_hold_but_for_a_suspended_job(state: str, reason: str, held: bool) -> None:
    assert job(state=state, nodes="n1" * (state != "PENDING"), priority="0", reason=reason).held is held


def test_ended_jobs_keep_their_times_and_no_nodes() -> None:
    seen = job(**RUNNING | {"state": "COMPLETED", "num_tasks": "N/A"})
    assert (seen.phase, seen.end_time_s, seen.allocated) == (Phase.ENDED, SUBMIT_S + 601, ())


def test_held_after_too_many_requeues() -> None:
    seen = job(reason="JobHoldMaxRequeue", restarts="6", num_nodes="3", tres="cpu=1,mem=1000M,node=1,billing=1")
    assert (seen.held, seen.restarts, seen.request.min_nodes) == (True, 6, 1)


def test_a_pending_array_is_one_job_for_each_task() -> None:
    parsed = record(raw="9", array="ArrayJobId=9 ArrayTaskId=0,2-3%5 ArrayTaskThrottle=5 ")
    assert [one.key.job_id for one in parsed.jobs] == ["9_0", "9_2", "9_3"]
    assert {one.array_job_id for one in parsed.jobs} == {9}
    assert {one.array_throttle for one in parsed.jobs} == {5}
    assert record(name="x ArrayTaskThrottle=1", array="ArrayJobId=9 ArrayTaskId=4 ").jobs[0].array_throttle == 0
    assert len({id(one.request) for one in parsed.jobs}) == 1


def test_a_task_that_was_split_off_and_an_array_that_was_cancelled() -> None:
    task = job(raw="11", array="ArrayJobId=9 ArrayTaskId=4 ")
    assert (task.key.job_id, task.raw_id) == ("9_4", 11)
    gone = job(raw="9", array="ArrayJobId=9 ArrayTaskId=4294967294 ArrayTaskThrottle=5 ", state="CANCELLED")
    assert (gone.key.job_id, gone.array_job_id) == ("9", 9)


def test_het_jobs_and_interactive_ones() -> None:
    part = job(raw="6", het="HetJobId=5 HetJobOffset=1 ", het_set="HetJobIdSet=5-6 ")
    assert (part.het_job_id, part.name) == (5, "train")
    assert not job(batch="0").batch


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [
        ({"num_nodes": "1"}, (1, 0)),
        ({"num_nodes": "2-2", "tres": "cpu=2,node=2"}, (2, 2)),
        ({"num_nodes": "1-3"}, (1, 3)),
        ({"num_nodes": "2", "tres": "cpu=8,node=1", "num_tasks": "2"}, (1, 0)),  # scontrol's own guess from the tasks
        ({"num_nodes": "1-500000"}, (1, 0)),
        ({"num_nodes": "1-12", "gpus": "TresPerJob=gres:gpu:12 "}, (1, 0)),  # how it shows the one above, with --gpus
        ({"num_nodes": "12-12", "gpus": "TresPerJob=gres:gpu:12 ", "tres": "node=12"}, (12, 12)),
        ({"num_nodes": "1", "num_tasks": "5", "tasks_per_node": "2"}, (3, 0)),
    ],
)
def test_numbers_of_nodes(fields: dict[str, str], nodes: tuple[int, int]) -> None:
    request = job(**fields).request
    assert (request.min_nodes, request.max_nodes) == nodes


@pytest.mark.parametrize(
    ("gpus", "asked"),
    [
        ("TresPerJob=gres:gpu:12 ", (12, None, None, "")),
        ("TresPerJob=gres:gpu:a100:6 ", (6, None, None, "a100")),
        ("TresPerNode=gres:gpu ", (None, 1, None, "")),
        ("TresPerTask=gres:gpu:2 ", (None, None, 2, "")),
        ("TresPerJob= TresPerNode=gres:gpu:4 ", (None, 4, None, "")),  # as a pin leaves it
        ("TresPerJob=gres:gpu:4 TresPerNode= ", (4, None, None, "")),  # and as it is put back
        ("TresPerNode=gres/gpu:a100:4 TresPerTask=cpu=8 ", (None, 4, None, "a100")),
        ("TresPerTask=cpu=8,gres/gpu=1 ", (None, None, 1, "")),
        ("TresPerNode=gres:nvme:1 ", (None, None, None, "")),
        ("", (None, None, None, "")),
    ],
)
def test_requested_gpus(gpus: str, asked: tuple[object, ...]) -> None:
    request = job(gpus=gpus).request
    assert (request.gpus_per_job, request.gpus_per_node, request.gpus_per_task, request.gpu_type) == asked


def test_a_job_that_slurm_itself_starts_again() -> None:
    assert job(gpus="ExpeditedRequeue=Yes TresPerNode=gres/gpu:1 ").expedited
    assert not job().expedited
    for field in ("name", "comment", "command", "workdir", "stderr"):
        assert not job(**{field: "x ExpeditedRequeue=Yes y"}).expedited


def test_a_total_and_a_number_for_each_node_give_the_number_of_nodes() -> None:
    request = job(gpus="TresPerJob=gres:gpu:12 TresPerNode=gres:gpu:6 ").request
    assert (request.gpus_per_job, request.gpus_per_node, request.min_nodes, request.max_nodes) == (None, 6, 2, 2)
    assert request.gpus_fixed


@pytest.mark.parametrize(
    ("gpus", "fixed"),
    [
        ("TresPerJob=gres:gpu:12 ", False),
        ("TresPerJob= TresPerNode=gres:gpu:4 ", False),
        ("TresPerNode=gres:gpu:a:1,gres:gpu:b:1 ", True),
        ("TresPerNode=gres:gpu:1,gres:nvme:1 ", True),
        ("TresPerJob=gres:gpu:4 TresPerTask=gres:gpu:1 ", True),
    ],
)
def test_gpus_that_cannot_be_given_another_number(gpus: str, fixed: bool) -> None:
    assert job(gpus=gpus).request.gpus_fixed is fixed


@pytest.mark.parametrize("prefix", ["gres:", "gres/"])
def test_gpus_by_socket_are_known_and_left_to_slurm(prefix: str) -> None:
    request = job(gpus=f"TresPerSocket={prefix}gpu:2 ").request
    assert (request.gpus_per_socket, request.has_gpus) == (2, False)


def test_requests_that_cannot_be_written_again() -> None:
    assert record(gpus="TresPerJob=gres:gpu:4,gres:nvme:1 ").mixed_gres
    assert record(gpus="TresPerNode=gres:gpu:g1:1,gres:gpu:g3:1 ").mixed_gres
    assert not record(gpus="TresPerJob=gres:gpu:a100:4 ").mixed_gres
    assert not record(gpus="TresPerNode=gres/gpu:4 TresPerTask=cpu=2 ").mixed_gres


def test_generic_resources_are_written_as_this_slurm_does() -> None:
    assert record(gpus="TresPerJob=gres/gpu:4 ").gres_prefix == "gres/"
    assert record(gpus="TresPerJob=gres:gpu:4 ").gres_prefix == "gres:"


def test_the_rest_of_a_request() -> None:
    seen = job(
        req_nodes="n[1-2]", exc_nodes="n3", memory="MinMemoryNode=2G", features="fast&big", licenses="matlab:1",
        dependency="afterok:12(unfulfilled)", reservation="Reservation=maint ", oversubscribe="NO", account="ml", qos="high",
    )  # fmt: skip
    assert (seen.request.required_nodes, seen.request.excluded_nodes) == (("n1", "n2"), ("n3",))
    assert (seen.request.memory_mib_per_node, seen.request.memory_mib_per_cpu) == (2048, None)
    assert (seen.features, seen.licenses, seen.dependency) == ("fast&big", "matlab:1", "afterok:12(unfulfilled)")
    assert (seen.reservation, seen.exclusive, seen.account, seen.qos) == ("maint", True, "ml", "high")


# ---- texts that users choose

FORGED = (
    "x UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=99 Nice=0 Account=root QOS=root JobState=RUNNING Reason=None "
    "Dependency=(null) Requeue=0 Restarts=9 BatchFlag=0 SubmitTime=t.1 EligibleTime=Unknown Partition=other "
    "ReqNodeList=n9 NodeList=n9 NumNodes=9 NumCPUs=9 NumTasks=9 TRES=node=9 OverSubscribe=NO Network=(null) "
    "Command=/x WorkDir=/x AdminComment=headway:hold  StdErr=/x StdIn=/x StdOut=/x Power= TresPerNode=gres:gpu:8 "
)


OWNER = "x UserId=root(0) GroupId=root(0) "


@pytest.mark.parametrize("text", [OWNER, f"a\nb {OWNER}\n", "name with = and spaces", " leading", "trailing "])
def test_a_name_does_not_change_the_other_fields(text: str) -> None:
    plain = job()
    seen = job(name=text)
    assert seen.name == text
    assert seen == SlurmJob(*[text if name == "name" else getattr(plain, name) for name in SlurmJob.__slots__])


@pytest.mark.parametrize("text", ["a userid=root(0) groupid=root(0) priority=5 account=b qos=c", "a=b", "a\nb", " "])
def test_an_account_that_slurm_has_not_checked_does_not_hide_the_owner(text: str) -> None:
    plain = job()
    assert job(account=text) == replace(plain, account=text)
    assert job(name=OWNER, account=text) == replace(plain, name=OWNER, account=text)
    assert job(wckey=f"WCKey={text} ") == plain


@pytest.mark.parametrize("field", ["name", "mcs_label"])
@pytest.mark.parametrize(
    "text", [FORGED, "x UserId=root(0) GroupId=root(0) MCS_label=y", "x\nUserId=root(0) MCS_label=y"]
)
def test_an_owner_in_a_name_or_in_an_mcs_label_is_not_believed(field: str, text: str) -> None:
    seen = job(**{field: text})
    assert (seen.user, seen.user_id) in {("", None), ("ann", 1001)}
    assert (seen.held, seen.state, seen.partition, seen.request) == (True, "PENDING", "dl", job().request)


@pytest.mark.parametrize("option", ["ClusterFeatures", "Prefer"])
@pytest.mark.parametrize(
    "text",
    [
        "x Nodes=n3 CPU_IDs=0-31 Mem=1 GRES=gpu:8 Reservation=r Licenses=a:1",
        "x Nodes=n3 CPU_IDs=0-31 Mem=1 GRES=gpu:8 OverSubscribe=NO Contiguous=0 Licenses=a:1 Network=(null) Command=/x ",
        "x OverSubscribe=NO Licenses=a:1",
        f"x Network={FORGED}",
        FORGED,
    ],
)
def test_an_option_between_slurms_values_claims_nothing(option: str, text: str) -> None:
    claims = {"cluster_features": f"{option}={text} "}
    for state in ({}, RUNNING):
        seen = job(**state, **claims)
        assert seen == replace(job(**state), admin_comment=seen.admin_comment, licenses=seen.licenses)
        assert seen.licenses == ""


def test_what_follows_an_honest_option_is_read() -> None:
    seen = job(cluster_features="ClusterFeatures=big ", oversubscribe="NO", licenses="matlab:1")
    assert (seen.exclusive, seen.licenses) == (True, "matlab:1")


@pytest.mark.parametrize("field", ["comment", "command", "workdir", "network", "stderr", "account", "name", "stdout"])
def test_no_text_changes_slurms_own_fields(field: str) -> None:
    seen = job(**{field: FORGED})
    assert seen.key == JobKey("7", SUBMIT_S)
    assert (seen.phase, seen.state, seen.reason, seen.restarts) == (Phase.PENDING, "PENDING", "JobHeldUser", 0)
    assert (seen.batch, seen.requeue, seen.partition, seen.exclusive) == (True, True, "dl", False)
    assert (seen.request.required_nodes, seen.request.min_nodes, seen.request.num_cpus) == ((), 1, 1)


@pytest.mark.parametrize("field", ["name", "comment", "command", "workdir", "network", "stderr"])
def test_no_text_before_the_request_changes_the_gpus(field: str) -> None:
    assert job(**{field: FORGED}).request.gpus_per_node == 2


def test_a_comment_is_no_mark() -> None:
    assert job(comment=f"x AdminComment={HOLD_MARK} y").marks == frozenset()
    assert job(command=f"/x AdminComment={HOLD_MARK}").marks == frozenset()
    assert job(name=f"x AdminComment={HOLD_MARK}").marks == frozenset()


def test_comments_are_kept_byte_for_byte() -> None:
    for text in ('it\'s "quoted"', "two  spaces ", " x", "a\nb", "k=v é", "x StdIn=y"):
        parsed = record(admin_comment=text, comment="user's own")
        assert (parsed.jobs[0].admin_comment, parsed.comment_is_exact) == (text, True), text
        assert parsed.jobs[0].comment == "user's own"


@pytest.mark.parametrize(
    "fields",
    [
        {"admin_comment": "billing=7 Comment=x"},
        {"workdir": "/x AdminComment=headway:hold", "admin_comment": "billing=7"},
        {"comment": "x StdErr=y", "admin_comment": "billing=7"},
    ],
)
def test_an_admin_comment_in_doubt_is_not_rewritten(fields: dict[str, str]) -> None:
    assert not record(**fields).comment_is_exact


FREE = st.text(
    st.one_of(st.characters(codec="utf-8", exclude_characters="\0"), st.sampled_from(list(" =\n:/"))), max_size=60
)
PIECES = st.lists(st.one_of(FREE, st.sampled_from(FORGED.split(" ")).map(lambda word: f" {word}")), max_size=8).map(
    "".join
)


@settings(max_examples=200, deadline=None)
@given(name=PIECES, comment=PIECES, workdir=PIECES, command=PIECES)
def test_whatever_users_write(name: str, comment: str, workdir: str, command: str) -> None:
    seen = job(name=name, comment=comment, workdir=f"/{workdir}", command=f"/{command}")
    assert (seen.key, seen.user, seen.held) == (JobKey("7", SUBMIT_S), "ann", True)
    assert (seen.state, seen.partition, seen.request.min_nodes) == ("PENDING", "dl", 1)
    assert seen.name == name


# ---- what is not understood


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rubbish",
        "JobId=7 JobName=x",
        job_line().replace(CLOCK.token, ""),  # as a Slurm would print that knows no SLURM_TIME_FORMAT
        job_line().replace("NumCPUs=1", ""),
        job_line(num_cpus="many"),
        job_line(start=f"{CLOCK.token}soon", **{k: v for k, v in RUNNING.items() if k != "start"}),
    ],
)
def test_text_that_cannot_be_parsed_is_an_error(text: str) -> None:
    with pytest.raises(SlurmReplyError):
        parse_job(text, CLOCK)


def test_every_client_prints_times_in_a_form_of_its_own() -> None:
    first, second = Clockface.secret(), Clockface.secret()
    assert first.token != second.token
    assert len(first.token) + 10 < 32, "what Slurm 22.05 gives a time"
    assert first.format == f"{first.token}%s"
    assert (CLOCK.seconds(at(5)), CLOCK.seconds("Unknown")) == (5.0, None)
    with pytest.raises(SlurmReplyError, match="not a time"):
        CLOCK.seconds(CLOCK.token + "9" * 400)
