"""The verbs by command line: what is asked of Slurm, in how many processes, and what counts as done."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from controller.base.errors import SlurmReplyError, SlurmUnavailableError, TurnLostError
from controller.slurm.client import FailureReason, Failures, Pin, SlurmClient
from controller.slurm.model.job import JobKey, Phase, ResourceRequest, SlurmJob
from controller.slurm.model.marks import CHECK_MARK, HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.run import Completed
from tests.unit.controller.slurm.scontrol.slurmctld import Slurmctld, held, pending, running
from tests.unit.controller.slurm.scontrol.text import CLOCK, SUBMIT_S, at, job_line

KEY = JobKey("7", SUBMIT_S)
NOW_S = SUBMIT_S + 100.0


def client_of(slurm: Slurmctld) -> CommandLineClient:
    return CommandLineClient(slurm, CLOCK, now=lambda: NOW_S)


async def job_of(client: CommandLineClient, job_id: str = "7") -> SlurmJob:
    return next(job for job in (await client.snapshot()).jobs if job.key.job_id == job_id)


def test_it_is_a_slurm_client() -> None:
    assert isinstance(client_of(Slurmctld()), SlurmClient)


# ---- reading


async def test_one_process_reads_everything() -> None:
    slurm = Slurmctld(held(7), running(8))
    snapshot = await client_of(slurm).snapshot()
    assert [job.key.job_id for job in snapshot.jobs] == ["7", "8"]
    assert (len(snapshot.nodes), len(snapshot.partitions), snapshot.reservations) == (4, 1, ())
    assert snapshot.time_s == NOW_S
    assert len(slurm.calls) == 1


async def test_nodes_that_have_not_registered_are_found_by_one_process() -> None:
    slurm = Slurmctld()
    slurm.unregistered = {"n2", "n3"}
    client = client_of(slurm)
    assert await client.unregistered(["n1", "n2", "n77"]) == {"n2", "n77"}
    assert await client.unregistered([]) == frozenset()
    assert len(slurm.calls) == 1
    assert [node.available for node in (await client.snapshot()).nodes] == [True, False, False, True]


async def test_a_list_of_nodes_that_is_longer_than_a_line_of_scontrol_is_divided() -> None:
    slurm = Slurmctld()
    names = [f"rack{rack}-node{node}" for rack in range(50) for node in range(40)]
    assert await client_of(slurm).unregistered(["n1", *names]) == set(names)
    lines = slurm.commands("show node")
    assert len(slurm.calls) == 1
    assert len(lines) > 5
    assert max(map(len, lines)) < 3600


async def test_an_unchanged_job_is_the_same_object() -> None:
    client = client_of(Slurmctld(held(7), running(8)))
    first, second = await client.snapshot(), await client.snapshot()
    assert all(after is before for after, before in zip(second.jobs, first.jobs, strict=True))
    assert all(after is before for after, before in zip(second.nodes, first.nodes, strict=True))


async def test_facts() -> None:
    facts = await client_of(Slurmctld()).facts()
    assert (facts.version, facts.cluster_name, facts.client) == ((22, 5, 8), "lab", "command-line")
    assert facts.settings["AccountingStorageTRES"] == "cpu,gres/gpu"


async def test_a_line_break_in_a_name_costs_a_second_reading_and_makes_no_job() -> None:
    evil = "a\nJobId=77 JobName=b"
    slurm = Slurmctld(held(7), held(8, name=evil), held(9))
    client = client_of(slurm)
    snapshot = await client.snapshot()
    assert sorted(job.key.job_id for job in snapshot.jobs) == ["7", "8", "9"]
    assert len(slurm.calls) == 2
    again = await client.snapshot()
    assert {id(job) for job in again.jobs} == {id(job) for job in snapshot.jobs}
    assert len(slurm.calls) == 3, "while nothing changes there is no second look"
    assert (await job_of(client, "8")).name == evil
    slurm["8"]["reason"] = "Dependency"
    assert (await job_of(client, "8")).reason == "Dependency"


async def test_a_flood_of_such_names_costs_a_bounded_number_of_readings() -> None:
    slurm = Slurmctld(*(held(raw, name="a\nb") for raw in range(1, 701)), held(1000))
    client = client_of(slurm)
    seen = [len((await client.snapshot()).jobs) for _ in range(4)]
    looks = [sum(line.startswith("show job ") for line in call) for call in slurm.calls]
    assert max(looks) == 300
    assert seen == [300, 525, 701, 701], "those that were read before have a quarter of the readings"


async def test_names_that_list_ids_keep_no_job_from_a_client_that_reads_once() -> None:
    names = ["a\n" + "\n".join(f"JobId={raw} x" for raw in range(begin, begin + 40)) for begin in range(1, 361, 40)]
    evil = [held(raw, name=name) for raw, name in enumerate(names, start=500)]
    slurm = Slurmctld(held(330), held(340), *evil, held(900), held(910))
    seen = {job.key.job_id for job in (await client_of(slurm).snapshot()).jobs}
    assert {"330", "910"} <= seen, "no text puts a job in doubt that stands elsewhere"
    # and those beside the texts are not always the ones that are left out
    random.seed(1)
    once = [await CommandLineClient(slurm, CLOCK, most_in_doubt=60).snapshot() for _ in range(60)]
    assert {"340", "900"} <= {job.key.job_id for snapshot in once for job in snapshot.jobs}


def made_up(number: int, ids: int = 80) -> str:
    """A name that looks like so many other jobs; `number` tells such names apart."""
    return "a" + "".join(f"\nJobId={1_000_000 + 100 * number + n} x" for n in range(ids))


async def test_ids_that_slurm_does_not_have_are_unread_only_until_they_were_asked_for() -> None:
    """Otherwise each task of an array that has ended would count as unread as long as such a text is there."""
    slurm = Slurmctld(held(90), *(held(100 + number, name=made_up(number)) for number in range(5)))
    client = CommandLineClient(slurm, CLOCK, most_in_doubt=25)
    assert (await client.snapshot()).unread
    for _ in range(30):
        snapshot = await client.snapshot()
    assert (snapshot.unread, snapshot.unread_of(["7_3"])) == (frozenset(), frozenset())


async def test_a_job_whose_record_is_old_is_read_before_it_is_changed() -> None:
    slurm = Slurmctld(*(held(raw, name="a\nb") for raw in range(1, 6)))
    client = CommandLineClient(slurm, CLOCK, most_in_doubt=1)
    for _ in range(6):
        snapshot = await client.snapshot()
    (job, *_) = (job for job in snapshot.jobs if job.raw_id in snapshot.unread)
    slurm.calls.clear()
    assert await client.pin([Pin(job.key, ("n1",), 2, job.request)]) == {}
    first = slurm.calls[0]
    assert any(line == f"show job {job.key.job_id}" for line in first), "it is read"
    assert not any(line.startswith("update") for line in first), "and not changed by what was known"
    # and the next snapshot shows it as it is now, although it is not its turn
    (now,) = (one for one in (await client.snapshot()).jobs if one.key == job.key)
    assert now.request.required_nodes == ("n1",)


async def test_ids_that_texts_make_up_keep_no_job_beside_them_from_a_client_that_reads_once() -> None:
    texts = [held(100 + number, name=made_up(number)) for number in range(10)]
    slurm = Slurmctld(held(90), *texts, held(900))
    for seed in range(10):
        random.seed(seed)
        jobs = (await CommandLineClient(slurm, CLOCK, most_in_doubt=25).snapshot()).jobs
        assert {"90", "900"} <= {job.key.job_id for job in jobs}


async def test_jobs_that_are_not_read_stay_as_they_were_and_are_listed() -> None:
    # Given jobs that were read, and more texts beside them at each reading than the client reads ids
    slurm = Slurmctld(*(held(raw) for raw in range(10, 60)))
    client = CommandLineClient(slurm, CLOCK, most_in_doubt=12)
    before = {job.key.job_id: job for job in (await client.snapshot()).jobs}
    for turn in range(12):
        for raw in range(10, 60, 2):
            slurm[str(raw)]["name"] = made_up(turn * 50 + raw, ids=5)
        if turn == 3:
            slurm["11"]["reason"] = "Dependency"
        snapshot = await client.snapshot()
        # Then every job is there, those that were not read as they were before, and their ids are listed
        found = {job.key.job_id: job for job in snapshot.jobs}
        assert found.keys() == before.keys()
        assert len(found) == len(snapshot.jobs)
        old = {job_id for job_id, job in found.items() if job is before[job_id] and job_id != "11"}
        assert snapshot.unread_of(found) >= {job_id for job_id in old if int(job_id) % 2 == 0}
        assert len(snapshot.unread) > 12
        if "11" not in snapshot.unread_of(["11"]) and turn >= 3:
            assert found["11"].reason == "Dependency"
            break
        before |= found
    else:
        pytest.fail("job 11 was not read in 12 turns")
    # and when the texts are gone, all is read
    for raw in range(10, 60, 2):
        slurm[str(raw)]["name"] = "a"
    snapshot = await client.snapshot()
    assert (len(snapshot.jobs), snapshot.unread, snapshot.unread_of(["10"])) == (50, frozenset(), frozenset())


async def test_a_job_that_ended_while_it_was_not_read_is_gone_when_no_text_names_it() -> None:
    slurm = Slurmctld(held(10), held(11), held(12))
    client = CommandLineClient(slurm, CLOCK, most_in_doubt=1)
    await client.snapshot()
    slurm["11"]["name"] = made_up(1)
    assert len((await client.snapshot()).jobs) == 3
    del slurm.jobs["10"], slurm.jobs["11"]
    snapshot = await client.snapshot()
    assert ([job.key.job_id for job in snapshot.jobs], snapshot.unread) == (["12"], frozenset())


async def test_what_was_known_survives_a_reading_that_fails_halfway() -> None:
    slurm = Slurmctld(held(10), held(11), held(12))
    client = CommandLineClient(slurm, CLOCK, most_in_doubt=1)
    await client.snapshot()
    slurm["11"]["name"] = made_up(1)
    slurm.before = lambda line: setattr(slurm, "away", line.startswith("show job "))
    with pytest.raises(SlurmUnavailableError):
        await client.snapshot()
    slurm.before, slurm.away = lambda line: None, False
    assert sorted(job.key.job_id for job in (await client.snapshot()).jobs) == ["10", "11", "12"]


async def test_a_snapshot_counts_the_jobs_that_its_reading_left_out() -> None:
    slurm = Slurmctld(held(7))

    class Crowded(Slurmctld):
        async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
            return replace(await super().run(program, arguments, stdin), left_out=4)

    assert (await CommandLineClient(slurm, CLOCK, bulk=Crowded(held(7))).snapshot()).left_out == 4
    assert (await CommandLineClient(slurm, CLOCK).snapshot()).left_out == 0


async def test_a_name_cannot_speak_for_another_job() -> None:
    slurm = Slurmctld(running(7), held(8, name=f"a\n{job_line(raw='7', state='COMPLETED', submit='t.1')}"))
    client = client_of(slurm)
    assert (await job_of(client, "7")).phase is Phase.RUNNING


async def test_jobs_of_other_ids_and_other_times_are_left_out() -> None:
    client = client_of(Slurmctld(held(7)))
    assert set(await client.read([KEY, JobKey("7", 1), JobKey("99", SUBMIT_S)])) == {KEY}
    with pytest.raises(ValueError, match="not a job id"):
        await client.read([JobKey("7 Priority=9", SUBMIT_S)])


async def test_a_burst_of_jobs_is_read_without_reading_all() -> None:
    slurm = Slurmctld(*(held(raw) for raw in range(1, 41)))
    found = await client_of(slurm).read([JobKey(str(raw), SUBMIT_S) for raw in range(1, 41)])
    assert len(found) == 40
    assert len(slurm.calls) == 1
    assert "show job" not in slurm.calls[0]


async def test_thousands_of_jobs_are_read_at_once() -> None:
    slurm = Slurmctld(*(held(raw) for raw in range(1, 1102)))
    found = await client_of(slurm).read([JobKey(str(raw), SUBMIT_S) for raw in range(1, 1102)])
    assert len(found) == 1101
    assert slurm.commands("show job ") == []


async def test_many_tasks_are_read_by_their_array() -> None:
    tasks = [held(100 + task, array=f"ArrayJobId=100 ArrayTaskId={task} ") for task in range(6)]
    slurm = Slurmctld(*tasks, held(7))
    client = client_of(slurm)
    keys = [JobKey(f"100_{task}", SUBMIT_S) for task in (0, 1, 2, 4, 9)]
    assert set(await client.read([*keys, KEY])) == {*keys[:4], KEY}
    assert slurm.commands("show job ") == ["show job 100", "show job 7"]
    del slurm.jobs["100_1"]
    assert set(await client.read(keys)) == {keys[0], *keys[2:4]}


async def test_two_tasks_are_read_by_their_array() -> None:
    """Otherwise scontrol prints the common record of waiting tasks once for each, under one number and with one task."""
    slurm = Slurmctld(*(held(100 + task, array=f"ArrayJobId=100 ArrayTaskId={task} ") for task in range(3)))
    client = client_of(slurm)
    keys = [JobKey(f"100_{task}", SUBMIT_S) for task in (0, 1)]
    assert set(await client.read(keys)) == set(keys)
    assert slurm.commands("show job ") == ["show job 100"]


async def test_a_task_with_a_record_of_its_own_is_read_without_its_array() -> None:
    # given tasks that slurmctld has split from their array, as a snapshot shows them
    slurm = Slurmctld(*(held(100 + task, array=f"ArrayJobId=100 ArrayTaskId={task} ") for task in range(1, 7)))
    client = client_of(slurm)
    await client.snapshot()
    # when some of them are read, then only their own records are sent
    keys = [JobKey(f"100_{task}", SUBMIT_S) for task in range(1, 6)]
    assert set(await client.read(keys)) == set(keys)
    assert slurm.commands("show job ") == [f"show job {100 + task}" for task in range(1, 6)]
    # and one that has another number now, because slurmctld has lost its newest jobs, is found by its id
    slurm.jobs["100_1"].raw = 300
    assert set(await client.read(keys[:1])) == {keys[0]}
    assert slurm.commands("show job ")[-2:] == ["show job 101", "show job 100_1"]


async def test_slurmctld_is_away() -> None:
    slurm = Slurmctld(held(7))
    client = client_of(slurm)
    await client.snapshot()
    slurm.away = True
    for call in (client.snapshot(), client.facts(), client.read([KEY]), client.release([KEY]), client.hold([KEY])):
        with pytest.raises(SlurmUnavailableError, match="connect failure"):
            await call


async def test_a_scontrol_that_fails_for_reasons_unknown() -> None:
    slurm = Slurmctld(held(7))

    class Failing:
        async def run(self, program, arguments, stdin=b""):  # type: ignore[no-untyped-def]
            done = await slurm.run(program, arguments, stdin)
            return type(done)(done.argv, 1, done.stdout, "scontrol: error: Something else")

    with pytest.raises(SlurmReplyError, match="Something else"):
        await CommandLineClient(Failing(), CLOCK).snapshot()


# ---- hold, marks


async def test_hold_and_mark_are_one_command() -> None:
    slurm = Slurmctld(pending(7))
    assert await client_of(slurm).hold([KEY]) == {}
    assert slurm.commands("update") == [f"update JobId=7 Priority=0 AdminComment={HOLD_MARK}"]
    assert (slurm["7"]["priority"], slurm["7"]["admin_comment"]) == ("0", HOLD_MARK)


@pytest.mark.parametrize(("begin_s", "ends"), [(5, True), (3600, False), (None, False)])
async def test_a_hold_ends_the_begin_time_of_a_job_that_slurm_has_checked_but_not_one_of_its_user(
    begin_s: int | None, ends: bool
) -> None:
    eligible = {} if begin_s is None else {"eligible": at(int(NOW_S) + begin_s)}
    slurm = Slurmctld(pending(7, admin_comment=f"billing=7 {CHECK_MARK}{NOW_S + 5:.0f} x", **eligible))
    assert await client_of(slurm).hold([KEY]) == {}
    assert slurm["7"]["admin_comment"] == f"billing=7 x {HOLD_MARK}"
    assert ["StartTime=now" in line for line in slurm.commands("update")] == [ends]


async def test_a_mark_without_a_time_changes_no_begin_time() -> None:
    slurm = Slurmctld(pending(7, admin_comment=f"{CHECK_MARK}soon", eligible=at(int(NOW_S) + 5)))
    assert await client_of(slurm).hold([KEY]) == {}
    assert slurm.commands("update") == [f"update JobId=7 Priority=0 AdminComment={HOLD_MARK}"]


async def test_a_hold_ends_as_one_that_the_user_may_release() -> None:
    slurm = Slurmctld(pending(7), held(8, admin_comment=HOLD_MARK, reason="JobHeldAdmin"))
    assert await client_of(slurm).hold([KEY, JobKey("8", SUBMIT_S)]) == {}
    assert slurm.commands("uhold") == ["uhold 7", "uhold 8"]
    assert (slurm["7"]["reason"], slurm["8"]["reason"]) == ("JobHeldUser", "JobHeldUser")
    assert len([call for call in slurm.calls if any(line.startswith("uhold") for line in call)]) == 1


@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin"])
@pytest.mark.parametrize("instead", ["", PIN_MARK])
async def test_a_mark_that_is_removed_just_after_another_process_has_held_the_job_is_put_back(
    reason: str, instead: str
) -> None:
    slurm = Slurmctld(pending(7, admin_comment=f"billing=7 {HOLD_MARK}"))

    def held_by_another_process(line: str) -> None:
        if line.startswith("update") and slurm["7"]["priority"] != "0":
            slurm["7"].update(priority="0", reason=reason)

    slurm.before = held_by_another_process
    failures = await client_of(slurm).unmark([KEY], HOLD_MARK, instead, unless_held=True)
    assert failures[KEY].reason is FailureReason.NOT_OURS
    assert slurm["7"]["admin_comment"] == f"billing=7 {HOLD_MARK}"


@pytest.mark.parametrize("moment", ["update", "uhold", "show job"])
async def test_a_hold_is_marked_although_another_process_removes_its_own_mark_of_the_job(moment: str) -> None:
    # given a job that another process has released, with the mark that this process is about to remove
    slurm = Slurmctld(pending(7, admin_comment=HOLD_MARK))
    client = client_of(slurm)
    await client.snapshot()
    removals = [""]

    def remove(line: str) -> None:
        if line.startswith(moment) and removals:
            slurm["7"]["admin_comment"] = removals.pop()

    # when it is held, and the mark goes before the hold, within it or after it
    slurm.before = remove
    assert await client.hold([KEY]) == {}
    # then it is held with the mark
    assert removals == []
    assert (slurm["7"]["priority"], slurm["7"]["admin_comment"]) == ("0", HOLD_MARK)
    assert slurm["7"]["reason"] == "JobHeldUser"


async def test_a_mark_that_cannot_be_written_again_prevents_no_hold() -> None:
    slurm = Slurmctld(pending(7, admin_comment=f"+=x {HOLD_MARK}"))
    assert await client_of(slurm).hold([KEY]) == {}
    assert (slurm["7"]["priority"], slurm["7"]["admin_comment"]) == ("0", f"+=x {HOLD_MARK}")


async def test_a_hold_that_stays_an_administrators_is_a_failure() -> None:
    slurm = Slurmctld(held(7, admin_comment=HOLD_MARK, reason="JobHeldAdmin"))
    slurm.deaf.add("7")
    assert "does not carry it out" in (await client_of(slurm).hold([KEY]))[KEY].message


async def test_a_comment_of_others_stays_byte_for_byte() -> None:
    text = "billing=7 'it''s' \"x\"\n  two lines \u00e9 "
    slurm = Slurmctld(held(7, admin_comment=text))
    client = client_of(slurm)
    assert await client.mark([KEY], HOLD_MARK) == {}
    assert slurm["7"]["admin_comment"] == f"{text} {HOLD_MARK}"
    assert await client.mark([KEY], USER_HOLD_MARK) == {}
    assert await client.unmark([KEY], HOLD_MARK) == {}
    assert slurm["7"]["admin_comment"] == f"{text} {USER_HOLD_MARK}"
    assert await client.unmark([KEY], USER_HOLD_MARK) == {}
    assert slurm["7"]["admin_comment"] == text


async def test_a_comment_is_never_a_command() -> None:
    slurm = Slurmctld(held(7, admin_comment="x\nrelease 8"), held(8))
    assert await client_of(slurm).mark([KEY], HOLD_MARK) == {}
    assert "release 8" not in [line for call in slurm.calls for line in call]
    assert slurm["8"]["priority"] == "0"


async def test_an_ambiguous_comment_is_left_alone() -> None:
    slurm = Slurmctld(pending(7, workdir="/x AdminComment=y", admin_comment="billing=7"))
    failures = await client_of(slurm).hold([KEY])
    assert "does not change its admin comment" in failures[KEY].message
    assert slurm["7"]["admin_comment"] == "billing=7"
    assert slurm["7"]["priority"] != "0", "held jobs without our mark are nobody's"


async def test_a_hold_of_slurms_own_is_made_ours_before_anything_is_changed() -> None:
    # It would end with the first change of the job.
    slurm = Slurmctld(held(7, reason="BadConstraints", admin_comment=PIN_MARK))
    assert await client_of(slurm).hold([KEY]) == {}
    assert slurm.commands("update") == [f"update JobId=7 Priority=0 AdminComment={HOLD_MARK}"]


async def test_one_mark_takes_the_place_of_another_in_one_command() -> None:
    slurm = Slurmctld(pending(7, admin_comment=HOLD_MARK), running(8, admin_comment=f"a {HOLD_MARK} b"))
    assert await client_of(slurm).unmark([KEY, JobKey("8", SUBMIT_S)], HOLD_MARK, PIN_MARK) == {}
    assert [slurm[job_id]["admin_comment"] for job_id in ("7", "8")] == [PIN_MARK, f"a b {PIN_MARK}"]
    assert len(slurm.commands("update")) == 2


async def test_a_mark_on_a_job_that_has_ended_is_left_alone() -> None:
    slurm = Slurmctld(running(7, state="COMPLETED", admin_comment=PIN_MARK))
    assert await client_of(slurm).unmark([KEY], PIN_MARK) == {}
    assert slurm.commands("update") == []


async def test_held_jobs_that_were_placed_need_only_the_mark_and_marked_ones_nothing() -> None:
    slurm = Slurmctld(held(7, admin_comment=PIN_MARK), held(8))
    assert await client_of(slurm).hold([KEY, JobKey("8", SUBMIT_S)]) == {}
    assert slurm.commands("update") == [f"update JobId=7 AdminComment={HOLD_MARK}"]


async def test_a_job_that_slurm_itself_has_put_on_hold_needs_no_mark() -> None:
    slurm = Slurmctld(held(7, admin_comment="", reason="BadConstraints"))
    assert await client_of(slurm).hold([KEY]) == {}
    assert slurm.commands("update") == [f"update JobId=7 Priority=0 AdminComment={HOLD_MARK}"]


@pytest.mark.parametrize("verb", ["hold", "release", "pin"])
async def test_a_hold_of_its_user_is_seen_although_the_job_was_free_when_it_was_last_read(verb: str) -> None:
    slurm = Slurmctld(pending(7))
    client = client_of(slurm)
    request = (await job_of(client)).request
    slurm["7"].update(priority="0", reason="JobHeldUser")
    arguments = [Pin(KEY, ("n1",), None, request)] if verb == "pin" else [KEY]
    failures = await getattr(client, verb)(arguments)
    assert failures[KEY].reason is FailureReason.NOT_OURS
    assert (slurm["7"]["priority"], slurm["7"]["admin_comment"]) == ("0", "")
    assert slurm.commands("update") + slurm.commands("release") == []


# ---- release


async def test_a_release_after_a_snapshot_costs_one_process() -> None:
    slurm = Slurmctld(held(7), held(8))
    client = client_of(slurm)
    await client.snapshot()
    assert await client.release([KEY, JobKey("8", SUBMIT_S)]) == {}
    assert len(slurm.calls) == 2
    assert [slurm[job]["priority"] for job in ("7", "8")] == ["4294901000"] * 2


@pytest.mark.parametrize("state", ["COMPLETING", "RUNNING"])
async def test_nothing_is_left_to_do_for_a_job_that_ends_before_its_mark_is_removed(state: str) -> None:
    slurm = Slurmctld(running(7, state=state, admin_comment=HOLD_MARK))
    slurm.refusals["7"] = "Job has already finished"
    failure = (await client_of(slurm).unmark([KEY], HOLD_MARK))[KEY]
    assert failure.message.endswith("Job has already finished")
    assert failure.gone == (state == "COMPLETING")


async def test_a_release_that_slurm_refuses() -> None:
    slurm = Slurmctld(held(7), held(8))
    slurm.refusals["7"] = "Access/permission denied"
    failures = await client_of(slurm).release([KEY, JobKey("8", SUBMIT_S)])
    assert {key.job_id: failure.message for key, failure in failures.items()} == {"7": "7: Access/permission denied"}
    assert slurm["8"]["priority"] == "4294901000"


async def test_a_release_that_slurm_confirms_is_not_read_back() -> None:
    slurm = Slurmctld(held(7))
    client = client_of(slurm)
    await client.snapshot()
    assert await client.release([KEY]) == {}
    assert slurm.calls[1][0] == "release 7"
    assert slurm.commands("show job 7") == []
    assert await client.release([KEY]) == {}
    assert slurm.commands("release") == ["release 7"], "what was released is read again before it is released again"


async def test_a_change_without_effect() -> None:
    slurm = Slurmctld(pending(7))
    slurm.deaf.add("7")
    assert "does not carry it out" in (await client_of(slurm).hold([KEY]))[KEY].message
    assert len(slurm.commands("update")) == 2


async def test_another_job_with_the_same_id_is_left_alone() -> None:
    slurm = Slurmctld(held(7))
    client = client_of(slurm)
    await client.snapshot()
    slurm["7"]["submit"] = at(SUBMIT_S + 500)
    failures = await client.release([JobKey("7", SUBMIT_S - 1), JobKey("99", SUBMIT_S)])
    assert [failure.gone for failure in failures.values()] == [True, True]
    assert slurm.commands("release") == []


async def test_a_kept_reading_never_confirms_a_change() -> None:
    slurm = Slurmctld(pending(7, admin_comment=HOLD_MARK))
    client = client_of(slurm)
    await client.snapshot()  # it was not held then ...
    slurm["7"]["priority"] = "0"  # ... and is now
    assert await client.release([KEY]) == {}
    assert slurm["7"]["priority"] == "4294901000"


async def test_without_changes_slurm_is_not_queried() -> None:
    slurm = Slurmctld()
    client = client_of(slurm)
    assert await client.release([]) == await client.hold([]) == await client.pin([]) == await client.unpin({}) == {}
    assert slurm.calls == []


# ---- pin, unpin


async def pinned(slurm: Slurmctld, nodes: tuple[str, ...], gpus: int | None) -> list[str]:
    """Pin job 7 and unpin it again; what was asked for both. It is as it was before."""
    client = client_of(slurm)
    original = (await job_of(client)).request
    assert await client.pin([Pin(KEY, nodes, gpus, original)]) == {}
    assert set((await job_of(client)).request.required_nodes) == set(nodes)
    asked = slurm.commands("update")
    assert await client.unpin({KEY: original}) == {}
    assert (await job_of(client)).request == original
    return asked


async def test_pin_of_gres_needs_only_the_node() -> None:
    assert await pinned(Slurmctld(held(7)), ("n2",), 2) == ["update JobId=7 ResetAccrueTime ReqNodeList=n2"]


@pytest.mark.parametrize("verb", ["pin", "unpin"])
async def test_a_job_that_runs_by_the_time_of_the_update_keeps_its_nodes(verb: str) -> None:
    # Given a held job that somebody releases after it was read, and that Slurm starts on two nodes
    slurm = Slurmctld(held(7, num_nodes="2-2"))
    client = client_of(slurm)
    original = replace((await job_of(client)).request, required_nodes=("n2",))
    slurm.jobs["7"] = running(7)
    before = dict(slurm.jobs["7"].fields)

    # When the controller binds it to one of them, or restores its request
    work = client.pin([Pin(KEY, ("n2",), 2, original)]) if verb == "pin" else client.unpin({KEY: original})
    assert (await work).keys() == {KEY}

    # Then it runs on where it was
    assert slurm.jobs["7"].fields == before


async def test_pin_of_a_node_range_fixes_it() -> None:
    slurm = Slurmctld(held(7, num_nodes="1-3"))
    assert await pinned(slurm, ("n1", "n3"), 2) == ["update JobId=7 ResetAccrueTime NumNodes=2-2 ReqNodeList=n1,n3"]


async def test_pin_of_a_total_divides_it() -> None:
    slurm = Slurmctld(held(7, gpus="TresPerJob=gres:gpu:a100:12 "))
    assert await pinned(slurm, ("n1", "n3"), 6) == [
        "update JobId=7 ResetAccrueTime TresPerJob= TresPerNode=gres:gpu:a100:6 NumNodes=2-2 ReqNodeList=n1,n3"
    ]


async def test_pin_of_a_total_on_one_node_bounds_it() -> None:
    slurm = Slurmctld(held(7, gpus="TresPerJob=gres/gpu:8 "))
    assert await pinned(slurm, ("n4",), 8) == ["update JobId=7 ResetAccrueTime NumNodes=1-1 ReqNodeList=n4"]


async def test_slurm_divides_gpus_where_no_request_can_express_the_division() -> None:
    slurm = Slurmctld(held(7, gpus="TresPerJob=gres:gpu:7 "))
    assert await pinned(slurm, ("n1", "n2"), None) == ["update JobId=7 ResetAccrueTime NumNodes=2-2 ReqNodeList=n1,n2"]


async def test_gpus_by_task_lie_where_the_tasks_are() -> None:
    slurm = Slurmctld(held(7, gpus="TresPerTask=gres:gpu:2 ", num_tasks="4", num_cpus="4"))
    assert await pinned(slurm, ("n1", "n2"), 4) == [
        "update JobId=7 ResetAccrueTime TasksPerNode=2 NumNodes=2-2 ReqNodeList=n1,n2"
    ]


async def test_a_users_own_nodes_are_restored() -> None:
    slurm = Slurmctld(held(7, num_nodes="2-2", tres="node=2", num_tasks="2", num_cpus="2", req_nodes="n4"))
    assert await pinned(slurm, ("n2", "n4"), 2) == ["update JobId=7 ResetAccrueTime ReqNodeList=n2,n4"]


async def test_a_users_own_tasks_are_restored() -> None:
    slurm = Slurmctld(held(7, gpus="TresPerJob=gres:gpu:12 ", num_tasks="2", num_cpus="2", num_nodes="1-4"))
    await pinned(slurm, ("n1", "n2", "n3", "n4"), 3)


@pytest.mark.parametrize("restarts", [0, 1])
async def test_slurms_wait_after_a_requeue_ends_and_a_users_begin_time_stays(restarts: int) -> None:
    slurm = Slurmctld(held(7, eligible=at(int(NOW_S) + 3600), restarts=str(restarts)))
    client = client_of(slurm)
    assert await client.pin([Pin(KEY, ("n1",), 2, (await job_of(client)).request)]) == {}
    (command,) = slurm.commands("update")
    assert ("StartTime=now" in command) is (restarts > 0)


async def test_a_pin_after_a_snapshot_costs_one_process_for_all_jobs() -> None:
    slurm = Slurmctld(held(7), held(8), held(9))
    client = client_of(slurm)
    pins = [Pin(job.key, ("n1",), 2, job.request) for job in (await client.snapshot()).jobs]
    assert await client.pin(pins) == {}
    assert len(slurm.calls) == 2


async def test_a_pin_can_be_repeated() -> None:
    slurm = Slurmctld(held(7, gpus="TresPerJob=gres:gpu:12 "))
    client = client_of(slurm)
    pin = Pin(KEY, ("n1", "n2"), 6, (await job_of(client)).request)
    assert await client.pin([pin]) == await client.pin([pin]) == {}
    assert len(slurm.commands("update")) == 1


async def test_a_bound_that_a_requeued_job_does_not_show_is_requested_once() -> None:
    slurm = Slurmctld(held(7, restarts="1", num_nodes="3"))
    client = client_of(slurm)
    pin = Pin(KEY, ("n2",), 2, ResourceRequest(1, 0, 1, 1, gpus_per_node=2, memory_mib_per_cpu=1000))
    slurm.before = lambda line: slurm["7"].update(num_nodes="3")  # it shows the number of its last run
    assert await client.pin([pin]) == {}
    assert slurm.commands("update") == ["update JobId=7 ResetAccrueTime NumNodes=1-1 ReqNodeList=n2"]


async def test_a_job_in_another_size_gets_its_tasks_after_its_nodes() -> None:
    # given a job of two nodes with two tasks on each
    slurm = Slurmctld(held(7, num_nodes="2-2", tres="cpu=4,node=2", num_tasks="4", num_cpus="4", tasks_per_node="2"))
    client = client_of(slurm)
    original = (await job_of(client)).request
    slurm["7"].update(restarts="1", num_nodes="2")
    # when it is to have one node, or four
    for nodes, tasks in ((("n3",), 2), (("n1", "n2", "n3", "n4"), 8)):
        slurm.calls.clear()
        count = len(nodes)
        size = replace(original, min_nodes=count, max_nodes=count, num_tasks=tasks, num_cpus=tasks)
        assert await client.pin([Pin(KEY, nodes, 2, size, resized=True)]) == {}
        assert slurm.commands("update") == [
            f"update JobId=7 ResetAccrueTime NumNodes={count}-{count} ReqNodeList={','.join(nodes)}",
            f"update JobId=7 NumTasks={tasks} NumCPUs={tasks}",
        ]
    # then it gets its own request back
    assert await client.unpin({KEY: original}) == {}
    found = (await job_of(client)).request
    assert (found.num_tasks, found.num_cpus, found.min_nodes) == (4, 4, 2)


async def test_a_job_on_more_nodes_than_the_tasks_that_its_user_gave_gets_as_many_tasks() -> None:
    job = held(7, num_tasks="2", num_cpus="4", cpus_per_task="2", tres="cpu=4,node=1", gpus="TresPerJob=gres/gpu:24 ")
    job.exact_tasks = True
    slurm = Slurmctld(job)
    client = client_of(slurm)
    original = (await job_of(client)).request
    assert await client.pin([Pin(KEY, ("n1", "n2", "n3"), 8, original)]) == {}
    request = (await job_of(client)).request
    assert (request.min_nodes, request.num_tasks, request.num_cpus) == (3, 3, 6)
    assert await client.unpin({KEY: original}) == {}
    assert (await job_of(client)).request == original


@pytest.mark.parametrize("nodes", [("n1",), ("n1", "n2")])
async def test_tasks_by_gpu_that_26_05_lowers_with_the_nodes_are_given_back(nodes: tuple[str, ...]) -> None:
    gpus = "TresPerJob=gres/gpu:4 "
    job = held(7, num_tasks="8", num_cpus="8", gpus=gpus, tres="cpu=8,node=1", num_nodes="1-8")
    job.exact_tasks, job.tasks_per_gpu = True, 2
    slurm = Slurmctld(job)
    client = client_of(slurm)
    original = (await job_of(client)).request
    for _ in range(2):
        assert await client.pin([Pin(KEY, nodes, 4 // len(nodes), original)]) == {}
        request = (await job_of(client)).request
        assert (request.min_nodes, request.required_nodes) == (len(nodes), nodes)
        assert (request.num_tasks, request.num_cpus) == (8, 8)
        assert await client.unpin({KEY: original}) == {}
        assert (await job_of(client)).request == original


@pytest.mark.parametrize(("least", "most"), [(1, 0), (2, 4)])
async def test_newer_releases_take_a_number_of_tasks_on_a_node_back_while_one_node_would_do(
    least: int, most: int
) -> None:
    num_nodes = f"{least}-{most}" if most else "1"
    gpus, tres = "TresPerTask=gres/gpu=2 ", f"cpu=8,node={least}"
    job = held(
        7, num_tasks="4", num_cpus="8", cpus_per_task="2", min_cpus="2", gpus=gpus, tres=tres, num_nodes=num_nodes
    )
    job.exact_tasks = True
    slurm = Slurmctld(job)
    client = client_of(slurm)
    original = (await job_of(client)).request
    for _ in range(2):
        assert await client.pin([Pin(KEY, ("n1", "n2"), 4, original)]) == {}
        assert (slurm["7"]["tasks_per_node"], slurm["7"]["min_cpus"], slurm["7"]["num_cpus"]) == ("2", "4", "8")
        assert await client.unpin({KEY: original}) == {}
        assert (slurm["7"]["tasks_per_node"], slurm["7"]["min_cpus"]) == ("0", "2")
        assert (await job_of(client)).request == original


async def test_newer_releases_need_no_number_for_one_task_on_each_node() -> None:
    gpus, tres = "TresPerTask=gres/gpu=2 ", "cpu=2,node=2"
    job = held(7, num_tasks="2", num_cpus="2", gpus=gpus, tres=tres, num_nodes="2-2")
    job.exact_tasks = True
    slurm = Slurmctld(job)
    client = client_of(slurm)
    original = (await job_of(client)).request
    assert await client.pin([Pin(KEY, ("n1", "n2"), 2, original)]) == {}
    assert slurm.commands("update") == ["update JobId=7 ResetAccrueTime ReqNodeList=n1,n2"]
    assert await client.unpin({KEY: original}) == {}
    assert (await job_of(client)).request == original


async def test_a_least_number_of_cpus_on_a_node_that_the_user_gave_stays() -> None:
    gpus = "TresPerTask=gres/gpu=2 "
    job = held(7, num_tasks="4", num_cpus="16", min_cpus="16", gpus=gpus, tres="cpu=16,node=1")
    job.exact_tasks = True
    slurm = Slurmctld(job)
    client = client_of(slurm)
    original = (await job_of(client)).request
    assert await client.pin([Pin(KEY, ("n1", "n2"), 4, original)]) == {}
    assert await client.unpin({KEY: original}) == {}
    assert slurm["7"]["min_cpus"] == "16"


@pytest.mark.parametrize("by_task", [False, True])
@pytest.mark.parametrize(("gpus", "nodes"), [(12, (1, 0)), (8, (1, 1))])
async def test_a_maximum_of_one_node_that_is_only_shown(gpus: int, nodes: tuple[int, int], by_task: bool) -> None:
    """Newer releases show 1-1 for a held job without --nodes; more GPUs than a node has show that it is none."""
    text = "TresPerTask=gres/gpu=1 " if by_task else f"TresPerJob=gres/gpu:{gpus} "
    line = job_line(num_nodes="1-1", num_tasks=str(gpus), gpus=text, admin_comment=HOLD_MARK)
    line = line.replace(" TRES=", " ReqTRES=")
    slurm = Slurmctld(held(7))
    slurm.jobs["7"].line = lambda: line  # type: ignore[method-assign]
    client = client_of(slurm)
    for _ in range(2):
        request = (await client.snapshot()).jobs[0].request
        assert (request.min_nodes, request.max_nodes) == nodes
        assert (await client.read([KEY]))[KEY].request == request
    assert (await client.snapshot()).jobs[0] is (await client.snapshot()).jobs[0]


@pytest.mark.parametrize("exact", [False, True])
async def test_gpus_by_task_on_one_node_and_then_on_two_and_on_one_again(exact: bool) -> None:
    job = held(7, num_tasks="4", num_cpus="4", gpus="TresPerTask=gres/gpu=2 ", tres="cpu=4,node=1")
    job.exact_tasks = exact
    slurm = Slurmctld(job)
    client = client_of(slurm)
    original = (await job_of(client)).request
    for nodes in (("n1",), ("n1", "n2"), ("n3",)):
        assert await client.pin([Pin(KEY, nodes, 8 // len(nodes), original)]) == {}
        request = (await job_of(client)).request
        assert (request.required_nodes, request.num_tasks) == (nodes, 4)
        assert request.tasks_per_node == (2 if len(nodes) == 2 else None)


@pytest.mark.parametrize(("prefix", "nodes"), [("gres:", "1-500000"), ("gres/", "1-1")])
async def test_a_job_by_node_gets_no_high_maximum_on_newer_releases(prefix: str, nodes: str) -> None:
    """They would start it on every free node."""
    slurm = Slurmctld(held(7, gpus=f"TresPerNode={prefix}gpu:2 "))
    client = client_of(slurm)
    original = (await job_of(client)).request
    assert await client.pin([Pin(KEY, ("n1",), 2, replace(original, min_nodes=1))]) == {}
    slurm["7"].update(num_nodes="2-2", tres="cpu=1,node=2")  # as another pin left it
    assert await client.unpin({KEY: original}) == {}
    assert slurm["7"]["num_nodes"] == nodes


async def test_a_job_on_a_part_of_its_node_has_that_part_of_its_cpus_and_memory() -> None:
    slurm = Slurmctld(
        held(7, num_cpus="16", cpus_per_task="16", memory="MinMemoryNode=8000M", gpus="TresPerNode=gres:gpu:8 ")
    )
    client = client_of(slurm)
    original = (await job_of(client)).request
    part = replace(original, gpus_per_node=2, num_cpus=4, cpus_per_task=4, memory_mib_per_node=2000, max_nodes=1)
    assert await client.pin([Pin(KEY, ("n2",), 2, part, resized=True)]) == {}
    (asked,) = slurm.commands("update")
    assert set(asked.split()[2:]) == {
        "TresPerNode=gres:gpu:2", "NumCPUs=4", "CPUsPerTask=4", "MinCPUsNode=4", "MinMemoryNode=2000", "ReqNodeList=n2",
            "ResetAccrueTime",
    }  # fmt: skip
    assert await client.unpin({KEY: original}) == {}
    assert (await job_of(client)).request == original


async def test_the_nodes_of_a_job_that_slurm_starts_again_are_taken_off_while_it_is_pending() -> None:
    fields = {"restarts": "1", "gpus": "ExpeditedRequeue=Yes TresPerNode=gres/gpu:2 ", "req_nodes": "n1"}
    slurm = Slurmctld(pending(7, **fields))
    client = client_of(slurm)
    original = replace((await job_of(client)).request, required_nodes=())
    assert await client.unpin({KEY: original}) == {}
    assert slurm.commands("update") == ["update JobId=7 ResetAccrueTime NumNodes=1-1 ReqNodeList="]
    assert (await job_of(client)).request == replace(original, max_nodes=1)
    # one that runs by then keeps its nodes
    slurm = Slurmctld(pending(7, **fields))
    client = client_of(slurm)
    await job_of(client)
    slurm.before = lambda line: slurm["7"].update(state="RUNNING", nodes="n1") if line.startswith("update") else None
    assert KEY in await client.unpin({KEY: original})
    assert slurm["7"]["nodes"] == "n1"


async def test_a_job_that_slurm_would_start_again_is_not_stopped() -> None:
    slurm = Slurmctld(running(7, gpus="ExpeditedRequeue=Yes TresPerNode=gres/gpu:2 "))
    assert "--requeue=expedite" in (await client_of(slurm).requeue_hold([KEY]))[KEY].message
    assert slurm.commands("requeuehold") == []


async def test_a_wrong_node_fails_alone_and_is_never_half_done() -> None:
    slurm = Slurmctld(held(7), held(8))
    client = client_of(slurm)
    request = (await job_of(client)).request
    other = JobKey("8", SUBMIT_S)
    failures = await client.pin([Pin(KEY, ("nope",), 2, request), Pin(other, ("n1",), 2, request)])
    assert {key.job_id: failure.message for key, failure in failures.items()} == {"7": "7: Invalid node name specified"}
    assert (slurm["7"].get("req_nodes"), slurm["8"]["req_nodes"]) == (None, "n1")


async def test_a_pin_that_does_not_show_is_a_failure() -> None:
    slurm = Slurmctld(held(7))
    slurm.deaf.add("7")
    client = client_of(slurm)
    assert set(await client.pin([Pin(KEY, ("n1",), 2, (await job_of(client)).request)])) == {KEY}


async def test_a_job_that_was_released_meanwhile_is_not_pinned() -> None:
    slurm = Slurmctld(held(7))
    client = client_of(slurm)
    request = (await job_of(client)).request
    slurm["7"]["priority"] = "9"
    failures = await client.pin([Pin(KEY, ("n1",), 2, request)])
    assert "not held" in failures[KEY].message


@pytest.mark.parametrize(
    ("gpus", "nodes", "per_node", "why"),
    [
        ("TresPerNode=gres:gpu:2 ", ("n1",), 4, "asks for 2 GPUs on each node, not 4"),
        ("TresPerJob=gres:gpu:8 ", ("n1", "n2"), 3, "are not the 8 that it asks for"),
        ("TresPerJob=gres:gpu:4,gres:nvme:2 ", ("n1", "n2"), 2, "only Slurm can divide"),
        ("TresPerTask=gres:gpu:1 ", ("n1", "n2"), 1, "for each of 1 tasks"),
        ("TresPerNode=gres:gpu:2 ", (), 2, "not a list of distinct nodes"),
        ("TresPerNode=gres:gpu:2 ", ("n1", "n1"), 2, "not a list of distinct nodes"),
        ("TresPerNode=gres:gpu:2 ", ("n1 Priority=9",), 2, "not a list of distinct nodes"),
        ("TresPerNode=gres:gpu:2 ", ("n1\nrelease",), 2, "not a list of distinct nodes"),
    ],
)
async def test_pins_that_cannot_be(gpus: str, nodes: tuple[str, ...], per_node: int, why: str) -> None:
    slurm = Slurmctld(held(7, gpus=gpus))
    client = client_of(slurm)
    failures = await client.pin([Pin(KEY, nodes, per_node, (await job_of(client)).request)])
    assert why in failures[KEY].message
    assert slurm.commands("update") == []


async def test_another_program_that_keeps_changing_a_job_back() -> None:
    slurm = Slurmctld(held(7, num_nodes="1-3"))
    client = client_of(slurm)
    pin = Pin(KEY, ("n1",), 2, (await job_of(client)).request)
    turn = iter(["1-3", "1-4"] * 20)
    slurm.before = lambda line: slurm["7"].update(num_nodes=next(turn)) if line.startswith("show job") else None
    assert set(await client.pin([pin])) == {KEY}


# ---- begin times, signals


async def test_begin_times() -> None:
    slurm = Slurmctld(held(7))
    client = client_of(slurm)
    assert await client.set_begin_time([KEY], NOW_S + 60) == {}
    assert (await job_of(client)).eligible_time_s == int(NOW_S + 60)
    assert await client.set_begin_time([KEY], None) == {}
    assert (await job_of(client)).eligible_time_s is None


async def test_a_job_that_starts_right_then_has_begun() -> None:
    slurm = Slurmctld(held(7))
    client = client_of(slurm)
    assert await client.set_begin_time([KEY], NOW_S + 60) == {}
    slurm.before = lambda line: slurm["7"].update(state="RUNNING") if line.startswith("update") else None
    assert await client.set_begin_time([KEY], None) == {}


async def test_signals_go_to_everything_of_a_running_job() -> None:
    slurm = Slurmctld(running(7), held(8))
    failures = await client_of(slurm).signal([KEY, JobKey("8", SUBMIT_S), JobKey("9", 1)], "USR1")
    assert slurm.signals == ["--full --signal=USR1 7"]
    assert {key.job_id: failure.gone for key, failure in failures.items()} == {"8": False, "9": True}
    with pytest.raises(ValueError, match="not a signal"):
        await client_of(slurm).signal([KEY], "USR1 8")


# ---- requeue_hold


async def test_requeue_marks_first_and_holds() -> None:
    slurm = Slurmctld(running(7))
    assert await client_of(slurm).requeue_hold([KEY]) == {}
    commands = [line for call in slurm.calls for line in call if line.startswith(("update", "requeuehold"))]
    assert commands == [f"update JobId=7 AdminComment={HOLD_MARK}", "requeuehold 7"]
    assert (slurm["7"]["state"], slurm["7"]["priority"]) == ("COMPLETING", "0")


@pytest.mark.parametrize(("priority", "left", "updates"), [("5", f"x {HOLD_MARK}", 1), ("0", f"x {USER_HOLD_MARK}", 0)])
async def test_a_job_that_is_requeued_is_its_users_to_hold_only_if_its_user_holds_it(
    priority: str, left: str, updates: int
) -> None:
    slurm = Slurmctld(running(7, admin_comment=f"x {USER_HOLD_MARK}", priority=priority))
    assert await client_of(slurm).requeue_hold([KEY]) == {}
    assert slurm["7"]["admin_comment"] == left
    assert len(slurm.commands("update")) == updates


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"state": "COMPLETED"}, "ended jobs are never restarted"),
        ({"requeue": "0"}, "--no-requeue"),
        ({"state": "COMPLETING"}, "not running"),
        ({"state": "PENDING", "nodes": "", "details": ""}, "not running"),
    ],
)
async def test_jobs_that_are_not_requeued(fields: dict[str, str], why: str) -> None:
    slurm = Slurmctld(running(7, **fields))
    failures = await client_of(slurm).requeue_hold([KEY])
    assert why in failures[KEY].message
    assert slurm.commands("requeuehold") == slurm.commands("update") == []


async def test_a_job_that_ends_while_slurm_is_slow_to_requeue_it_is_not_restarted() -> None:
    slurm, now_s = Slurmctld(running(7)), 0.0

    def end(line: str) -> None:
        nonlocal now_s
        if line == "requeuehold 7":
            slurm["7"]["state"] = "COMPLETED"
            now_s += 1.0

    slurm.before = end
    client = client_of(slurm)
    client._monotonic = lambda: now_s
    failures = await client.requeue_hold([KEY])
    assert "ended just before" in failures[KEY].message
    assert "scancel 7" in failures[KEY].message
    assert (slurm["7"]["priority"], slurm["7"].get("admin_comment")) == ("0", "")


async def test_a_job_that_is_cancelled_right_then_is_not_started_again() -> None:
    """Its processes still end when it is looked at for the last time, and Slurm requeues it all the same."""
    slurm = Slurmctld(running(7))

    def cancel(line: str) -> None:
        if line.startswith("update"):  # the mark, right before
            slurm["7"]["state"] = "COMPLETING"

    slurm.before = cancel
    failures = await client_of(slurm).requeue_hold([KEY])
    assert "ended just before" in failures[KEY].message
    assert (slurm["7"]["priority"], slurm["7"].get("admin_comment")) == ("0", "")


async def test_a_job_that_is_held_while_it_runs_is_its_users_after_a_stop() -> None:
    slurm = Slurmctld(running(7, priority="0"))
    assert await client_of(slurm).requeue_hold([KEY]) == {}
    assert (slurm["7"]["priority"], slurm["7"].get("admin_comment")) == ("0", USER_HOLD_MARK)


async def test_a_requeue_that_slurm_refuses_leaves_no_mark() -> None:
    slurm = Slurmctld(running(7))

    def forbid(line: str) -> None:
        if line == "requeuehold 7":
            slurm["7"]["requeue"] = "0"

    slurm.before = forbid
    failures = await client_of(slurm).requeue_hold([KEY])
    assert failures[KEY].message == "7: Requested operation is presently disabled"
    assert slurm["7"]["admin_comment"] == ""


_CHANGES: dict[str, Callable[[CommandLineClient], Awaitable[Failures]]] = {
    "hold": lambda client: client.hold([JobKey("9", SUBMIT_S)]),
    "mark": lambda client: client.mark([KEY], PIN_MARK),
    "unmark": lambda client: client.unmark([KEY], HOLD_MARK),
    "release": lambda client: client.release([KEY]),
    "set_begin_time": lambda client: client.set_begin_time([KEY], SUBMIT_S + 1e6),
    "signal": lambda client: client.signal([JobKey("8", SUBMIT_S)], "USR1"),
    "requeue_hold": lambda client: client.requeue_hold([JobKey("8", SUBMIT_S)]),
}


@pytest.mark.parametrize("verb", _CHANGES)
async def test_nothing_is_sent_that_may_not_be_changed_now(verb: str) -> None:
    # given a client whose process has lost its turn to change jobs
    slurm = Slurmctld(held(7), running(8), pending(9))
    client = client_of(slurm)
    client.before_change = _lost
    # when it is to change a job
    try:
        failures = await _CHANGES[verb](client)
    except TurnLostError:
        pass
    else:
        assert [failure.reason for failure in failures.values()] == [FailureReason.UNAVAILABLE]
    # then nothing but reading has reached Slurm
    assert not _changing(slurm)
    # and with its turn it does
    client.before_change = lambda: None
    await _CHANGES[verb](client)
    assert _changing(slurm)


def _changing(slurm: Slurmctld) -> list[str]:
    return slurm.signals + [line for call in slurm.calls for line in call if not line.startswith("show")]


def _lost() -> None:
    raise TurnLostError("another process has changed jobs")


@pytest.mark.parametrize("state", ["RUNNING", "CONFIGURING", "SUSPENDED"])
async def test_a_job_that_starts_right_before_its_hold_is_not_left_with_priority_0(state: str) -> None:
    # given a job that Slurm starts after it was read, and a slurmctld that sets priorities of running jobs too
    slurm = Slurmctld(pending(7))
    sent: list[str] = []

    def start(line: str) -> None:
        sent.append(line)
        if line.startswith("update") and "Priority=0" in line:
            slurm["7"].update(state=state, nodes="n1")

    slurm.before = start
    failures = await client_of(slurm).hold([KEY])
    # then the hold fails, and its effect is undone
    assert [failure.reason for failure in failures.values()] == [FailureReason.REFUSED]
    assert "release 7" in sent
    assert slurm["7"]["priority"] != "0"
