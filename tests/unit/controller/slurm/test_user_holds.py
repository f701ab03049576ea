"""An accepted `scontrol hold` is never forgotten, whenever it comes and whatever breaks."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.base.clock import RealClock
from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError, SlurmError
from controller.base.lease import read_lease
from controller.cycle.decision.decider import Decider
from controller.daemon.daemon import Controller
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.slurm.birthmark import BIRTHMARK
from controller.slurm.embedded import Submission, open_embedded, sbatch_request
from controller.slurm.model.job import IMPOSSIBLE, JobKey, Phase
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.user_holds import Hold, HoldFolder, is_held_by_user, own_holds, settled
from controller.state.journal import Journal
from policies.api import Decision, load_policy
from policies.serving.runtime.sdnotify import Notifier
from tests.birthmarks import without_birthmark
from tests.unit.controller.cycle.decision.test_decider import BrokenPolicy, FakeEndpoint
from tests.unit.controller.examples.build import job, snapshot
from tests.unit.controller.worlds.world import World


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, policy="fifo-skip")


def when(world, verb, action, *, after=False):
    """Do something once, while the controller's next call of a verb is under way."""
    real, left = getattr(world.slurm.client, verb), [action]

    async def call(*arguments, **options):
        if left and not after:
            left.pop()()
        answer = await real(*arguments, **options)
        if left:
            left.pop()()
        return answer

    setattr(world.slurm.client, verb, call)


async def is_the_users_own(world, job_id):
    """The job waits as long as its user likes, and is its user's to release; nothing of ours is left."""
    await world.go_on(60)
    record = world.slurm.job(job_id)
    assert (record.phase, record.held, without_birthmark(record.admin_comment)) == (Phase.PENDING, True, USER_HOLD_MARK)
    assert world.holds.read() == {}
    world.slurm.user_release(job_id)
    await world.go_on(20)
    assert world.slurm.job(job_id).phase is Phase.RUNNING


# --- whenever it comes


async def test_a_hold_that_falls_together_with_that_of_a_controller_whose_lease_was_stale(world):
    # given a job that waits without our mark, as one that the watchdog has released
    world.alive = False
    world.sbatch(30.0, gpus_per_node=8, nodes=4)
    await world.clock.advance(1.0)
    key = world.sbatch(100.0)
    real, left = world.slurm.client.hold, [key.job_id]

    async def hold_of_both(keys):
        if not left:
            return await real(keys)
        world.slurm.user_hold(
            left.pop()
        )  # between the reading of the job and the change, which Slurm accepts all the same
        record = world.slurm.job(key.job_id)
        record.admin_comment = f"{record.admin_comment} {HOLD_MARK}".strip()
        return {}

    world.slurm.client.hold = hold_of_both
    # when a controller takes jobs into its queue before it has renewed the lease, and later
    await world.turn()
    assert left, "no job is held while its user's holds are not recorded"
    world.alive = True
    # then the job is its user's
    await is_the_users_own(world, key.job_id)
    assert not left


async def test_jobs_with_our_mark_are_taken_into_the_queue_although_the_lease_is_stale(world):
    world.alive = False
    world.sbatch(30.0, gpus_per_node=8, nodes=4)
    await world.clock.advance(1.0)
    world.alive = True
    key = world.sbatch(100.0)
    world.alive = False
    world.slurm.user_release(key.job_id)
    await world.turn()
    assert world.slurm.job(key.job_id).held


async def test_a_hold_before_the_controller_starts_again(world):
    key = world.sbatch(100.0)
    world.slurm.user_hold(key.job_id)
    world.restart()
    await is_the_users_own(world, key.job_id)


@pytest.mark.parametrize("verb", ["snapshot", "pin", "release"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_hold_while_the_job_is_placed(world, verb, after):
    key = world.sbatch(100.0)
    when(world, verb, lambda: world.slurm.user_hold(key.job_id), after=after)
    await is_the_users_own(world, key.job_id)


async def test_a_hold_while_the_hold_of_another_job_is_seen_to(world):
    first, second = world.sbatch(100.0), world.sbatch(100.0)
    when(world, "pin", lambda: world.slurm.user_hold(first.job_id))
    when(world, "mark", lambda: world.slurm.user_hold(second.job_id))  # the first becomes its user's own
    await world.go_on(10)
    assert not [call for call in world.slurm.faults.calls if call.verb == "release"], "neither may begin"
    for key in (first, second):
        await is_the_users_own(world, key.job_id)


@dataclass
class SlowPolicy(FakeEndpoint):
    """Somebody does something while it decides."""

    meanwhile: list[Any] = field(default_factory=list)

    async def decide(self, state, deadline_s):
        for action in self.meanwhile:
            action()
        self.meanwhile.clear()
        return Decision({0: self.placement})


async def test_a_hold_during_a_decision(tmp_path):
    policy = SlowPolicy()
    world = World(tmp_path, endpoint=policy)
    key = world.sbatch(100.0, gpus_per_node=1)
    policy.meanwhile.append(lambda: world.slurm.user_hold(key.job_id))
    await world.go_on(10)
    assert not [call for call in world.slurm.faults.calls if call.verb == "release"], "it may not even begin"
    await is_the_users_own(world, key.job_id)


@pytest.mark.parametrize("after", [False, True])
async def test_a_hold_while_the_controller_takes_the_job_over(world, after):
    world.alive = False
    for _ in range(4):
        world.sbatch(30.0, gpus_per_node=8)
    key = world.sbatch(100.0)
    await world.clock.advance(2.0)
    world.alive = True
    when(world, "hold", lambda: world.slurm.user_hold(key.job_id), after=after)
    await is_the_users_own(world, key.job_id)


async def waits_for_its_user(world, key):
    """The job waits without a mark of ours as long as its user likes, and is scheduled as before when it is released."""
    world.alive = True
    await world.go_on(60)
    record = world.slurm.job(key.job_id)
    assert (record.phase, record.held, without_birthmark(record.admin_comment), record.starts) == (
        Phase.PENDING,
        True,
        "",
        [],
    )
    assert key not in world.ledger.refusals
    assert key not in world.ledger.yielded
    world.slurm.user_release(key.job_id)
    await world.go_on(20)
    assert world.slurm.job(key.job_id).phase is Phase.RUNNING


async def test_a_hold_without_a_lease_while_the_controller_takes_the_job_over(world):
    world.alive = False
    for _ in range(4):
        world.sbatch(30.0, gpus_per_node=8)
    key = world.sbatch(100.0)
    await world.clock.advance(2.0)

    def lease_runs_out():
        world.alive = False
        world.slurm.user_hold(key.job_id)

    world.alive = True
    when(world, "hold", lease_runs_out)
    await world.turn()
    await waits_for_its_user(world, key)


@pytest.mark.parametrize("verb", ["pin", "release"])
async def test_a_hold_of_a_job_that_was_released_while_the_controller_stood_still(world, verb):
    key = world.sbatch(100.0)

    def meanwhile():
        """The lease runs out, the watchdog releases the job, and its user holds it."""
        world.alive = False
        world.slurm.update(key.job_id, AdminComment="", NumNodes="1-1", ReqNodeList="")
        world.slurm.admin_release(key.job_id)
        world.slurm.user_hold(key.job_id)

    when(world, verb, meanwhile)
    await world.turn()
    await waits_for_its_user(world, key)


async def test_a_hold_while_the_job_is_given_to_slurm(world):
    world.decider._fallback = BrokenPolicy()
    key = world.sbatch(100.0)
    when(world, "release", lambda: world.slurm.user_hold(key.job_id))
    await world.go_on(60)  # more than `stale_after_s` of failures
    record = world.slurm.job(key.job_id)
    assert (record.phase, record.held, without_birthmark(record.admin_comment)) == (Phase.PENDING, True, USER_HOLD_MARK)


async def test_a_hold_while_a_job_that_did_not_start_is_taken_back(world):
    key = world.sbatch(100.0, gpus_per_node=8, never_starts=True)
    await world.go_on(5)
    when(world, "hold", lambda: world.slurm.user_hold(key.job_id))
    await world.go_on(20)
    record = world.slurm.job(key.job_id)
    record.submission = replace(record.submission, never_starts=False)
    await is_the_users_own(world, key.job_id)
    assert world.slurm.job(key.job_id).request.gpus_per_node == 8


async def test_a_hold_that_was_not_seen_at_the_release_counts_in_the_next_cycle(world):
    key = world.sbatch(100.0, never_starts=True)

    def hold():
        world.holds.write(key.job_id, Hold(world.clock.now()))
        world.slurm.faults.lose_request("read")

    when(world, "release", hold)
    await world.turn()
    assert not world.slurm.job(key.job_id).held
    await world.clock.advance(1.0)
    await world.turn()
    record = world.slurm.job(key.job_id)
    assert (record.held, without_birthmark(record.admin_comment)) == (True, USER_HOLD_MARK)


async def test_a_hold_of_a_job_that_slurm_is_starting_lets_it_run_with_an_event_and_holds_its_next_run(world):
    key = world.sbatch(1000.0)
    await world.turn()
    world.holds.write(key.job_id, Hold(world.clock.now()))
    await world.clock.advance(5.0)
    assert world.phase(key) is Phase.RUNNING
    await world.go_on(3)
    assert world.phase(key) is Phase.RUNNING
    events = [event.text for event in world.events.recent(key.job_id)]
    assert sum("so it runs; it is held when it is requeued" in text for text in events) == 1
    # when it is requeued, then it is its user's to release
    world.slurm.requeue(key.job_id)
    await world.go_on(60)
    job = world.slurm.job(key.job_id)
    assert (job.phase, job.held, without_birthmark(job.admin_comment)) == (Phase.PENDING, True, USER_HOLD_MARK)
    assert world.holds.read() == {}
    world.slurm.user_release(key.job_id)
    await world.go_on(30)
    assert world.phase(key) is Phase.RUNNING


async def test_a_hold_of_a_running_job_counts_when_it_is_stopped_for_another(world):
    key = world.sbatch(100.0)
    await world.go_on(3)
    world.slurm.user_hold(key.job_id)
    await world.go_on(3)
    (running,) = (one.key for one in (await world.slurm.client.snapshot()).jobs)
    assert await world.slurm.client.requeue_hold([running]) == {}
    await is_the_users_own(world, key.job_id)


async def test_a_hold_of_a_placed_job_that_slurm_finds_impossible_is_kept(world):
    # Given a job that Slurm has put on hold on the nodes that were chosen for it: its user's hold changes nothing that Slurm shows
    key = world.sbatch(100.0, free_choice_only=True)
    await world.turn()
    await world.clock.advance(3.0)
    record = world.slurm.job(key.job_id)
    assert (record.reason, without_birthmark(record.admin_comment)) == (IMPOSSIBLE, PIN_MARK)
    # When its user holds it, then it is the user's own
    world.slurm.user_hold(key.job_id)
    assert record.reason == IMPOSSIBLE
    await is_the_users_own(world, key.job_id)


async def test_a_hold_of_a_whole_array_is_one_of_each_task(world):
    world.sbatch(20.0, gpus_per_node=8, nodes=4)
    await world.go_on(3)
    first = world.sbatch(100.0, array=(1, 2, 3))
    array_id = first.job_id.split("_")[0]
    world.holds.write(array_id, Hold(world.clock.now()))
    await world.go_on(60)
    tasks = [world.slurm.job(f"{array_id}_{task}") for task in (1, 2, 3)]
    assert [(task.phase, without_birthmark(task.admin_comment)) for task in tasks] == [
        (Phase.PENDING, USER_HOLD_MARK)
    ] * 3
    assert world.holds.read() == {}


@pytest.mark.parametrize("own_file", [False, True])
async def test_a_hold_of_a_whole_array_does_not_undo_releases_of_its_tasks(world, own_file):
    # Given an array of which one task runs, and its user's hold of all
    asked = sbatch_request(gpus_per_node=8, nodes=4)
    first, second = (
        key.job_id for key in world.slurm.submit_all(Submission(request=asked, duration_s=200.0, array=(1, 2)))
    )
    await world.go_on(5)
    world.slurm.user_hold(first)
    if not own_file:
        world.holds.remove([first])
    world.holds.write(first.split("_")[0], Hold(world.clock.now()))
    await world.go_on(5)
    assert set(world.holds.read()) == {first}, "what the running task's hold needs, and no more"
    # When the user releases the other task, then it is started
    world.slurm.user_release(second)
    await world.go_on(250)
    assert world.phase(JobKey(second, 0)) in {Phase.RUNNING, Phase.ENDED}


def test_running_tasks_get_holds_of_their_own_before_the_arrays_is_removed():
    tasks = [
        replace(HELD, key=HELD.key._replace(job_id=f"7_{n}"), array_job_id=7, phase=Phase.RUNNING) for n in (1, 2, 3)
    ]
    time_s = HELD.key.submit_time_s + 5.0
    holds = {"7": Hold(time_s), "7_1": Hold(time_s + 1.0)}
    own = Hold(time_s, HELD.key.submit_time_s, HELD.restarts, HELD.user_id)
    assert own_holds(holds, tasks) == {"7_2": own, "7_3": own}
    assert settled(holds, snapshot(*tasks)) == set(), "the array's own is needed until they have theirs"
    assert settled({**holds, "7_2": own, "7_3": own}, snapshot(*tasks)) == {"7"}
    assert own_holds({}, tasks) == {}
    assert own_holds(holds, [replace(task, held=False) for task in tasks]) == {}


# --- whatever breaks


@pytest.mark.parametrize("verb", ["hold", "mark", "unmark", "read"])
@pytest.mark.parametrize("fault", ["lose_request", "lose_reply", "refuse"])
async def test_a_hold_survives_what_slurm_does_not_do(world, verb, fault):
    world.sbatch(20.0, gpus_per_node=8, nodes=4)
    key = world.sbatch(100.0)
    await world.go_on(3)
    world.slurm.user_hold(key.job_id)
    if fault == "refuse":
        world.slurm.faults.refuse_next(verb, "try again")
    else:
        getattr(world.slurm.faults, fault)(verb)
    await is_the_users_own(world, key.job_id)


@pytest.mark.parametrize("verb", ["hold", "mark", "unmark"])
async def test_a_hold_survives_a_controller_that_is_killed_over_it(world, verb):
    class Killed(BaseException):
        pass

    def die():
        raise Killed

    key = world.sbatch(100.0)
    world.slurm.user_hold(key.job_id)
    when(world, verb, die, after=True)
    with pytest.raises(Killed):
        await world.turn()
    world.restart()
    await is_the_users_own(world, key.job_id)


async def test_a_hold_that_cannot_be_written_down_is_refused(world):
    key = world.sbatch(100.0)
    shutil.rmtree(world.folder / "holds")
    with pytest.raises(SlurmError, match="try again"):
        world.slurm.user_hold(key.job_id)
    await world.go_on(3)
    assert world.phase(key) is Phase.RUNNING


async def test_a_controller_that_is_stopped_sees_to_the_last_holds_first(tmp_path):
    """systemd removes the folder when the unit stops for good."""
    # Given the daemon beside an embedded Slurm on the real clock, and a job that waits
    clock = RealClock()
    settings = ControllerSettings(
        partitions=("dl",), slurm_client="embedded", runtime_dir=tmp_path, state_dir=tmp_path / "state"
    )
    slurm = open_embedded(settings)
    HoldFolder(settings.holds_path).make()
    with closing(Journal(settings.journal_path)) as journal, closing(WakePipe(settings.wake_path)) as wake:
        decider = Decider(FakeEndpoint(away=True), load_policy("fifo"), 0.5, clock)
        controller = Controller(settings, slurm.client, decider, journal, clock, lambda address: FakeEndpoint(address))
        running = asyncio.create_task(controller.run(wake, Notifier({})))
        async with asyncio.timeout(60.0):
            while read_lease(settings.lease_path) is None:
                await asyncio.sleep(0.02)
            slurm.submit(Submission(request=sbatch_request(gpus_per_node=8, nodes=4), duration_s=1000.0))
            key = slurm.submit(Submission(request=sbatch_request(gpus_per_node=8), duration_s=1000.0))
            while slurm.job("1").phase is not Phase.RUNNING:
                await asyncio.sleep(0.02)
            # When its user holds it, and the controller is stopped before it has looked
            slurm.user_hold(key.job_id)
            controller.stop()
            await running
    # Then the hold is the user's
    assert without_birthmark(slurm.job(key.job_id).admin_comment) == USER_HOLD_MARK


# --- taken back


async def test_a_hold_that_is_taken_back_at_once_is_none(world):
    key = world.sbatch(100.0)
    world.slurm.user_hold(key.job_id)
    world.slurm.user_release(key.job_id)
    assert world.slurm.job(key.job_id).held, "it still waits for its nodes"
    await world.go_on(3)
    assert world.phase(key) is Phase.RUNNING
    assert world.journal.decisions_of(key), "the policy placed it"


@pytest.mark.parametrize(("verb", "after"), [("hold", False), ("hold", True), ("mark", False)])
async def test_a_hold_that_is_taken_back_while_it_is_seen_to_is_none(world, verb, after):
    world.sbatch(20.0, gpus_per_node=8, nodes=4)
    key = world.sbatch(100.0)
    await world.go_on(3)
    world.slurm.user_hold(key.job_id)
    when(world, verb, lambda: world.slurm.user_release(key.job_id), after=after)
    await world.go_on(60)
    assert world.phase(key) is Phase.RUNNING
    assert world.journal.decisions_of(key), "the policy placed it"


async def test_a_hold_that_the_watchdog_sees_to_first_is_kept(world):
    world.sbatch(20.0, gpus_per_node=8, nodes=4)
    key = world.sbatch(100.0)
    await world.go_on(3)
    world.slurm.user_hold(key.job_id)

    def watchdog():
        world.slurm.job(key.job_id).admin_comment = USER_HOLD_MARK
        world.holds.remove([key.job_id])

    when(world, "hold", watchdog)
    await is_the_users_own(world, key.job_id)


async def with_both_marks(world):
    """A job whose hold was taken back while it was seen to, which was broken off then."""
    world.sbatch(20.0, gpus_per_node=8, nodes=4)
    key = world.sbatch(100.0)
    await world.go_on(3)
    world.slurm.user_hold(key.job_id)
    when(world, "mark", lambda: world.slurm.user_release(key.job_id))
    world.slurm.faults.lose_request("unmark")
    await world.turn()
    assert without_birthmark(world.slurm.job(key.job_id).admin_comment).split() == [HOLD_MARK, USER_HOLD_MARK]
    return key


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_hold_that_is_taken_back_is_none_after_an_interruption_too(world, restarts):
    key = await with_both_marks(world)
    if restarts:
        world.holds.make()
        world.restart()
    await world.go_on(60)
    assert world.phase(key) is Phase.RUNNING
    assert world.journal.decisions_of(key), "the policy placed it"


@pytest.mark.parametrize("lost", ["unmark", None])
async def test_without_the_folder_a_job_with_both_marks_is_its_users_own(world, lost):
    """The folder went with the controller, so that a file which is not there says nothing."""
    key = await with_both_marks(world)
    shutil.rmtree(world.settings.holds_path)
    world.holds.make()
    world.restart()
    if lost:
        world.slurm.faults.lose_request(lost)
    await is_the_users_own(world, key.job_id)
    assert world.holds.is_complete


async def test_a_release_amid_a_change_of_hands_is_refused_rather_than_lost(world):
    world.sbatch(20.0, gpus_per_node=8, nodes=4)
    key = world.sbatch(100.0)
    await world.go_on(3)
    world.slurm.user_hold(key.job_id)
    refused = []

    def release():
        with pytest.raises(SlurmError):
            world.slurm.user_release(key.job_id)
        refused.append(key.job_id)

    when(world, "mark", release, after=True)
    await world.go_on(1)
    assert refused
    await is_the_users_own(world, key.job_id)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_hold_that_ended_while_the_controller_was_away_is_not_the_users_after_a_preemption(world, comes_back):
    # Given a job that was submitted on hold, and released while nobody looked
    key = world.sbatch(1000.0, hold=True)
    await world.go_on(3)
    world.alive = False
    world.slurm.user_release(key.job_id)
    await world.clock.advance(10.0)
    world.alive = True
    world.restart()
    if comes_back:
        await world.go_on(3)
        assert without_birthmark(world.slurm.job(key.job_id).admin_comment) == ""
    # When it is stopped for another
    assert await world.slurm.client.requeue_hold([key]) == {}
    assert without_birthmark(world.slurm.job(key.job_id).admin_comment) == HOLD_MARK
    # Then Headway starts it again
    await world.go_on(150)
    assert world.phase(key) is Phase.RUNNING


async def test_a_mark_of_a_running_job_that_its_user_holds_stays(world):
    key = world.sbatch(1000.0, hold=True)
    await world.go_on(3)
    world.alive = False
    world.slurm.user_release(key.job_id)
    await world.clock.advance(10.0)
    world.slurm.user_hold(key.job_id)
    world.alive = True
    world.restart()
    await world.go_on(3)
    assert (world.phase(key), without_birthmark(world.slurm.job(key.job_id).admin_comment)) == (
        Phase.RUNNING,
        USER_HOLD_MARK,
    )


async def test_after_many_holds_and_releases_the_users_last_request_counts(world):
    world.sbatch(50.0, gpus_per_node=8, nodes=4)
    key = world.sbatch(100.0)
    for number in range(20):
        world.slurm.user_hold(key.job_id)
        await world.go_on(number % 3)
        if not number % 2:
            world.slurm.user_release(key.job_id)
            await world.go_on(number % 4)
    await world.go_on(3)
    await is_the_users_own(world, key.job_id)


# --- the folder


def test_only_names_of_jobs_count(tmp_path):
    folder = HoldFolder(tmp_path)
    for name in ("12", "12_3", ".new", "12.bak", "x", "12_", "1" * 30):
        (tmp_path / name).touch()
    assert set(folder.read()) == {"12", "12_3"}
    assert folder.remove(["12", "99"]) == 1
    assert set(folder.read()) == {"12_3"}
    assert folder.room == 999


def test_a_folder_that_is_not_there_has_no_holds(tmp_path):
    assert HoldFolder(tmp_path / "holds").read() == {}


def out_of_reach(path, kind):
    """Make the folder unreadable: missing, like one whose mount is gone, or with an error of the file system."""
    away = path.rename(path.with_name("away"))
    if kind == "error":
        path.touch()  # "not a directory": the tests may run as root, which every mode lets in
    return away


def back(away, path):
    """Put the folder back in its place."""
    path.unlink(missing_ok=True)
    away.rename(path)


@pytest.mark.parametrize("kind", ["missing", "error"])
def test_holds_are_kept_while_their_folder_cannot_be_read(tmp_path, kind):
    path = tmp_path / "holds"
    folder = HoldFolder(path)
    folder.make()
    (path / "12").touch()
    (path / "13").touch()
    assert folder.read().keys() == {"12", "13"}
    with capture_logs() as logs:
        away = out_of_reach(path, kind)
        for _ in range(3):
            assert folder.read().keys() == {"12", "13"}
            assert not folder.is_complete
        with suppress(OSError):
            folder.remove(["13"])
        assert folder.read().keys() == {"12"}, "one that the controller has seen to does not count any more"
        # when it can be read, then a file that is gone is a hold that was withdrawn
        back(away, path)
        (path / "12").unlink()
        assert folder.read().keys() == {"13"}
        folder.remove(["13"])
        assert folder.read() == {}
    assert [log["event"] for log in logs] == ["holds_unreadable", "holds_readable_again"]


@pytest.mark.parametrize("kind", ["missing", "error"])
async def test_a_job_is_not_released_while_the_folder_with_its_hold_cannot_be_read(world, kind):
    key = world.sbatch(100.0)
    world.slurm.user_hold(key.job_id)
    assert key.job_id in world.holds.read(), "as the heartbeat reads them every second"
    away = out_of_reach(world.settings.holds_path, kind)
    await world.go_on(20)
    assert world.phase(key) is Phase.PENDING
    back(away, world.settings.holds_path)
    await is_the_users_own(world, key.job_id)


def test_a_new_folder_is_incomplete_until_all_jobs_were_checked(tmp_path):
    folder = HoldFolder(tmp_path / "holds")
    assert not folder.is_complete
    for _ in range(2):  # a controller that is killed at once, and the next one
        folder.make()
        assert not folder.is_complete
    folder.completed()
    folder.completed()
    folder.make()
    assert folder.is_complete


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_path_that_is_no_folder_is_refused(tmp_path, kind):
    path = tmp_path / "holds"
    if kind == "file":
        path.touch()
    else:
        path.symlink_to(tmp_path)
    with pytest.raises(ConfigurationError, match="holds: cannot be made"):
        HoldFolder(path).make()


def test_the_folder_is_for_its_owner_until_a_group_is_let_in(tmp_path):
    folder = HoldFolder(tmp_path / "holds")
    folder.make()
    assert (tmp_path / "holds").stat().st_mode & 0o777 == 0o700
    folder.grant(os.getgid())
    assert (tmp_path / "holds").stat().st_mode & 0o777 == 0o770


HELD = job("7", held=True, admin_comment=HOLD_MARK)


@pytest.mark.parametrize(
    ("record", "left"),
    [
        (HELD, True),
        (replace(HELD, admin_comment=f"{HOLD_MARK} {USER_HOLD_MARK}"), True),
        (replace(HELD, held=False, admin_comment=""), True),
        (replace(HELD, admin_comment=PIN_MARK, reason=IMPOSSIBLE), True),
        (replace(HELD, admin_comment=USER_HOLD_MARK), False),
        (replace(HELD, admin_comment="", reason="JobHeldUser"), True),
        (replace(HELD, admin_comment="", reason="JobHeldAdmin"), False),
        (replace(HELD, phase=Phase.RUNNING), True),
        (replace(HELD, phase=Phase.RUNNING, held=False, start_time_s=HELD.key.submit_time_s + 4.5), True),
        (replace(HELD, phase=Phase.RUNNING, held=False, start_time_s=HELD.key.submit_time_s + 3.0), False),
        (replace(HELD, phase=Phase.RUNNING, held=False), False),
        (replace(HELD, phase=Phase.ENDED), False),
        (replace(HELD, key=HELD.key._replace(job_id="8")), False),
    ],
)
def test_a_hold_is_kept_until_nothing_is_left_to_do(record, left):
    holds = {"7": Hold(HELD.key.submit_time_s + 5.0)}
    assert settled(holds, snapshot(record)) == (set() if left else {"7"})


@pytest.mark.parametrize("name", ["7", "7_1"])
def test_a_hold_of_a_job_that_was_not_read_is_kept(name):
    holds = {name: Hold(HELD.key.submit_time_s + 5.0), "9": Hold(HELD.key.submit_time_s + 5.0)}
    assert settled(holds, snapshot(unread=frozenset({7}))) == {"9"}
    # and so is that of a job whose old record says that its user has it already
    key = HELD.key._replace(job_id=name)
    old = replace(HELD, key=key, raw_id=7, admin_comment=USER_HOLD_MARK)
    assert settled(holds, snapshot(old, unread=frozenset({7}))) == {"9"}
    assert settled(holds, snapshot(old, unread=frozenset({8}))) == {name, "9"}


@pytest.mark.parametrize(
    ("since_s", "restarts", "theirs"), [(1, 0, True), (0, 0, True), (-0.5, 0, False), (-60, 0, False), (-60, 1, True)]
)
def test_a_hold_of_another_job_with_the_same_id_does_not_count(since_s, restarts, theirs):
    record = replace(HELD, restarts=restarts)
    assert is_held_by_user(record, {"7": Hold(HELD.key.submit_time_s + since_s)}) == theirs


def test_a_hold_of_one_job_does_not_count_for_a_requeued_one():
    """A requeued job may have holds of any age: but only its own."""
    requeued = job("15", submit=1000, restarts=1)
    assert not is_held_by_user(requeued, {"7": Hold(999.0)})
    assert is_held_by_user(requeued, {"15": Hold(1.0)})


SUBMITTED_S = HELD.key.submit_time_s


@pytest.mark.parametrize(
    ("record", "theirs"),
    [
        (HELD, True),
        (replace(HELD, key=HELD.key._replace(submit_time_s=SUBMITTED_S + 90)), False),  # the id was issued again
        # its requeue had counted when the hold came, and had no submit time yet
        (replace(HELD, key=HELD.key._replace(submit_time_s=SUBMITTED_S + 90), restarts=1), True),
        (
            replace(HELD, key=HELD.key._replace(submit_time_s=SUBMITTED_S + 90), restarts=2),
            True,
        ),  # the job was requeued
        (replace(HELD, restarts=1), True),
        (replace(HELD, key=HELD.key._replace(submit_time_s=SUBMITTED_S + 90), restarts=2, user_id=1002), False),
        (replace(HELD, key=HELD.key._replace(submit_time_s=SUBMITTED_S + 90), restarts=2, user_id=None), True),
    ],
)
@pytest.mark.parametrize("clock_s", [-3600.0, 5.0, 7200.0])
def test_a_file_tells_its_job_whatever_the_clock_was_set_to(record, theirs, clock_s):
    hold = Hold(SUBMITTED_S + clock_s, SUBMITTED_S, restarts=1, user_id=1001)
    assert is_held_by_user(record, {"7": hold}) == theirs
    assert settled({"7": hold}, snapshot(record)) == (set() if theirs else {"7"})


AGAIN = HELD.key._replace(submit_time_s=SUBMITTED_S + 90)
BORN = replace(HELD, admin_comment=f"{BIRTHMARK}abc {HOLD_MARK}")


@pytest.mark.parametrize(
    ("record", "theirs"),
    [
        (BORN, True),
        (replace(BORN, key=AGAIN, restarts=1), True),
        (replace(BORN, key=AGAIN), True),
        (replace(BORN, key=AGAIN, user_id=1002), False),
        (replace(BORN, admin_comment=f"{BIRTHMARK}abd {HOLD_MARK}"), False),
        (replace(BORN, key=AGAIN, restarts=2, admin_comment=f"{BIRTHMARK}abd {HOLD_MARK}"), False),
        # an operator has overwritten the comment, or no controller was there at the submission: as without birthmarks
        (replace(HELD, key=AGAIN, restarts=1), True),
        (replace(HELD, key=AGAIN), False),
    ],
)
@pytest.mark.parametrize("name", ["7", "7_1"])
def test_where_job_and_hold_have_birthmarks_these_tell_the_job(name, record, theirs):
    record = replace(record, key=record.key._replace(job_id=name), array_job_id=7 if name == "7_1" else None)
    assert is_held_by_user(record, {"7": Hold(SUBMITTED_S + 5.0, SUBMITTED_S, 1, 1001, "abc")}) == theirs


RUNS_AGAIN = replace(BORN, key=AGAIN, restarts=1, held=False, phase=Phase.RUNNING, start_time_s=SUBMITTED_S + 100.0)


@pytest.mark.parametrize(
    ("record", "born", "left"),
    [
        (RUNS_AGAIN, "abc", True),  # a release that was under way has ended the hold
        (replace(RUNS_AGAIN, admin_comment=f"{BIRTHMARK}abc"), "abc", True),
        (
            replace(RUNS_AGAIN, admin_comment=f"{BIRTHMARK}abc {USER_HOLD_MARK}"),
            "abc",
            False,
        ),  # an operator released it
        (
            replace(RUNS_AGAIN, start_time_s=SUBMITTED_S + 3.0),
            "abc",
            False,
        ),  # it was held as it ran, and released since
        (replace(RUNS_AGAIN, start_time_s=None), "abc", False),
        (replace(RUNS_AGAIN, held=True, start_time_s=SUBMITTED_S + 3.0), "abc", True),
        (RUNS_AGAIN, "abd", False),
        (RUNS_AGAIN, "", False),  # not certain
        (replace(RUNS_AGAIN, admin_comment=HOLD_MARK), "abc", False),
    ],
)
def test_a_hold_of_a_job_that_was_requeued_and_runs_again_is_for_its_next_run(record, born, left):
    holds = {"7": Hold(SUBMITTED_S + 5.0, SUBMITTED_S, 0, 1001, born)}
    assert settled(holds, snapshot(record)) == (set() if left else {"7"})


def test_a_hold_that_headway_writes_itself_has_the_birthmark():
    key = HELD.key._replace(job_id="7_1")
    task = replace(BORN, key=key, array_job_id=7, phase=Phase.RUNNING, user_id=1001)
    hold = Hold(SUBMITTED_S + 5.0, SUBMITTED_S, 0, 1001, "abc")
    assert own_holds({"7": hold}, [task]) == {"7_1": hold}


def test_a_hold_of_a_whole_array_is_for_its_tasks_whether_they_were_requeued_or_not():
    task = replace(HELD, key=HELD.key._replace(job_id="7_1"), array_job_id=7)
    hold = {"7": Hold(SUBMITTED_S - 60.0, SUBMITTED_S)}
    assert is_held_by_user(task, hold)
    again = task.key._replace(submit_time_s=SUBMITTED_S + 90)
    assert is_held_by_user(replace(task, key=again, restarts=1), hold)
    assert not is_held_by_user(replace(task, key=again), hold)


@pytest.mark.parametrize(
    ("text", "job"),
    [
        (b"1700000015 3 1001\n", (1700000015, 3, 1001)),
        (b"1700000015 3 1001", (1700000015, 3, 1001)),
        (b"1700000015 3 1001 rk2t9a0f\n", (1700000015, 3, 1001, "rk2t9a0f")),
        (b"1700000015 3 1001 Rk2\n", (None, 0, None)),
        (b"1700000015 3 1001 rk2 t9\n", (None, 0, None)),
        (b"1700000015 3 1001 " + b"a" * 17 + b"\n", (None, 0, None)),
        (b"", (None, 0, None)),
        (b"1700000015 3\n", (None, 0, None)),
        (b"-5 3 1001\n", (None, 0, None)),
        (b"1700000015 3 1001\nmore", (None, 0, None)),
        (b"\xff\x00" * 100, (None, 0, None)),
        (b"9" * 1000 + b" 1 1\n", (None, 0, None)),
    ],
)
def test_a_file_says_which_job_it_is_for(tmp_path, text, job):
    (tmp_path / "12").write_bytes(text)
    os.utime(tmp_path / "12", (500.25, 500.25))
    folder = HoldFolder(tmp_path)
    assert folder.read() == folder.read() == {"12": Hold(500.25, *job)}


def test_a_file_that_was_replaced_is_read_again(tmp_path):
    folder = HoldFolder(tmp_path)
    for hold in (Hold(500.0, 400, 0, 1001), Hold(500.0, 450, 1, 1001, "rk2t9a0f"), Hold(500.0)):
        folder.write("12", hold)
        assert folder.read() == {"12": hold} == HoldFolder(tmp_path).read()
    assert [path.name for path in tmp_path.iterdir()] == ["12"]


def test_what_is_no_ordinary_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "12")  # opened without care, it would wait for a writer
    (tmp_path / "13").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("1700000015 3 1001\n")
    (tmp_path / "14").mkdir()
    assert {name: hold[1:] for name, hold in HoldFolder(tmp_path).read().items()} == dict.fromkeys(
        ("12", "13", "14"), (None, 0, None, "")
    )


async def test_a_hold_counts_though_the_machines_clock_was_set_back_since_the_submission(world):
    key = world.sbatch(100.0)
    world.slurm.user_hold(key.job_id)
    path = world.settings.holds_path / key.job_id
    os.utime(path, (key.submit_time_s - 3600.0,) * 2)
    await is_the_users_own(world, key.job_id)


def test_a_hold_whose_file_cannot_be_removed_counts_no_more(tmp_path, monkeypatch):
    # given two holds, one of which cannot be removed
    folder = HoldFolder(tmp_path / "holds")
    folder.make()
    for job_id in ("7", "8"):
        folder.write(job_id, Hold(1000.0, 990, 0, 1))
    assert set(folder.read()) == {"7", "8"}
    unlink = Path.unlink

    def refused(path, missing_ok=False):
        if path.name == "7":
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(PermissionError):
        folder.remove(["7", "8"])
    # then neither counts, however often the folder is read
    assert (folder.read(), folder.read()) == ({}, {})
    assert (tmp_path / "holds" / "7").exists()
    # but a later hold of the same job does
    folder.write("7", Hold(2000.0, 990, 0, 1))
    assert set(folder.read()) == {"7"}
    # and a file that can be removed at last is gone
    with pytest.raises(PermissionError):
        folder.remove(["7"])
    monkeypatch.undo()
    assert folder.read() == {}
    assert not (tmp_path / "holds" / "7").exists()
