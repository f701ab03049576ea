"""job_submit.lua: changes and holds by users."""

import os
import time
from pathlib import Path

import pytest

from tests.unit.slurm.lua_plugin import HELD, NO_LUA, NO_VAL, RELEASE, LuaPlugin, Pipe, untouched

pytestmark = NO_LUA


# --- changes by users


@pytest.mark.parametrize("change", [{"priority": RELEASE}, {"priority": 100}, {"nice": 2147483698}])
def test_users_cannot_release_what_headway_holds(plugin: LuaPlugin, change: dict[str, object]) -> None:
    answer = plugin.modify({}, **change)

    assert answer.code == HELD
    assert "headway why 7" in answer.logged("info")
    assert answer.logged("user") == ""  # Slurm before 23.02 cannot show it, and logs an error about it


@pytest.mark.parametrize("later_s", [0, 3600])
def test_users_move_the_begin_time_of_what_headway_holds(plugin: LuaPlugin, later_s: int) -> None:
    begin = int(time.time()) + later_s

    answer = plugin.modify({"array_job_id": 7, "array_task_id": 3}, begin_time=begin)

    assert (answer.code, answer.job["begin_time"], answer.job["priority"]) == (0, str(begin), str(NO_VAL))


@pytest.mark.parametrize("comment", ["headway:hold", "headway:pinned", "headway:user-hold"])
def test_where_it_ends_no_hold_users_change_the_nice_value(plugin: LuaPlugin, pipe: Pipe, comment: str) -> None:
    plugin.beat(nice_keeps_holds=True)
    (plugin.holds / "7").touch()

    answer = plugin.modify({"admin_comment": comment}, nice=2147483698)

    assert (answer.code, answer.job["begin_time"], answer.job["nice"]) == (0, "0", "2147483698")
    assert (written(plugin), pipe.lines()) == ({"7"}, []), "it releases no job"
    assert plugin.modify({"admin_comment": "headway:hold"}, nice=2147483698, priority=100).code == HELD


def test_on_newer_slurm_the_user_reads_what_to_do(plugin: LuaPlugin) -> None:
    plugin.script.write_text(plugin.script.read_text().replace("slurm.ESLURM_JOB_HELD", "2042"))

    assert "headway why 7" in plugin.modify({}, priority=RELEASE).logged("user")


@pytest.mark.parametrize("uid", [0, 64030])
def test_root_and_the_controller_change_what_they_like(plugin: LuaPlugin, uid: int) -> None:
    assert plugin.modify({}, uid=uid, priority=RELEASE).code == 0


@pytest.mark.parametrize(
    "record",
    [
        {"admin_comment": None},
        {"admin_comment": "headway:holdall"},
        {"priority": 5},
    ],
)
def test_jobs_that_headway_does_not_hold_are_their_users_own(plugin: LuaPlugin, record: dict[str, object]) -> None:
    assert plugin.modify(record, priority=RELEASE).code == 0


def test_other_changes_pass(plugin: LuaPlugin) -> None:
    assert plugin.modify({}, comment="x", time_limit=5).code == 0


NO_FILES = "io.open = function() error('a file is opened') end os.remove = io.open os.rename = io.open"


@pytest.mark.parametrize("comment", ["headway:hold", "headway:user-hold", None])
def test_no_file_is_looked_at_for_other_changes(plugin: LuaPlugin, comment: str | None) -> None:
    answer = plugin.modify({"admin_comment": comment}, before=NO_FILES, partition="other", time_limit=5)
    others = plugin.modify({"admin_comment": comment}, uid=2002, before=NO_FILES, priority=0)

    assert [(each.code, each.logged("error")) for each in (answer, others)] == [(0, "")] * 2


def test_with_a_stale_lease_users_release_their_jobs(plugin: LuaPlugin) -> None:
    plugin.beat(age_s=60)

    assert plugin.modify({}, priority=RELEASE).code == 0


# --- holds by users


def written(plugin: LuaPlugin) -> set[str]:
    return {path.name for path in plugin.holds.iterdir()}


@pytest.mark.parametrize(
    ("record", "shown"),
    [({}, "7"), ({"array_job_id": 7, "array_task_id": 3}, "7_3"), ({"array_job_id": 7}, "7"), ({"priority": 9}, "7")],
)
@pytest.mark.parametrize("comment", ["headway:hold", "headway:user-hold", "headway:user-hold headway:hold", None])
def test_a_users_hold_is_recorded_and_reported_to_the_controller(
    plugin: LuaPlugin, pipe: Pipe, record: dict[str, object], shown: str, comment: str | None
) -> None:
    assert plugin.modify({"admin_comment": comment, **record}, priority=0).code == 0
    assert written(plugin) == {shown}
    assert pipe.lines() == [f"user-hold {shown}"]


def test_a_hold_is_written_down_though_the_wake_pipe_takes_nothing(plugin: LuaPlugin, pipe: Pipe) -> None:
    plugin.beat(room=0)

    assert plugin.modify({}, priority=0).code == 0
    assert (written(plugin), pipe.lines()) == ({"7"}, [])


@pytest.mark.parametrize("lease", ["stale", "none"])
def test_a_hold_of_a_job_that_headway_holds_is_written_down_for_the_watchdog_too(
    plugin: LuaPlugin, pipe: Pipe, lease: str
) -> None:
    plugin.beat(age_s=1000)
    if lease == "none":
        (plugin.runtime_dir / "lease").unlink()

    assert plugin.modify({}, priority=0).code == 0
    assert (written(plugin), pipe.lines()) == ({"7"}, [])


@pytest.mark.parametrize("lease", ["stale", "none"])
def test_a_hold_of_a_placed_job_is_written_down_for_a_controller_whose_clock_is_wrong(
    plugin: LuaPlugin, pipe: Pipe, lease: str
) -> None:
    plugin.beat(age_s=-3600)
    if lease == "none":
        (plugin.runtime_dir / "lease").unlink()

    assert plugin.modify({"admin_comment": "headway:pinned", "priority": 9}, priority=0).code == 0
    assert (written(plugin), pipe.lines()) == ({"7"}, [])


@pytest.mark.parametrize("lease", ["fresh", "stale", "none"])
def test_a_hold_that_cannot_be_written_down_is_refused_rather_than_lost(plugin: LuaPlugin, lease: str) -> None:
    plugin.holds.rmdir()
    plugin.beat(age_s=0 if lease == "fresh" else 1000)
    if lease == "none":
        (plugin.runtime_dir / "lease").unlink()

    answer = plugin.modify({}, priority=0)

    assert answer.code == HELD
    assert "Try again" in answer.logged("info")


def test_a_hold_of_a_job_that_headway_does_not_hold_passes_whether_it_is_written_down_or_not(plugin: LuaPlugin) -> None:
    plugin.holds.rmdir()

    assert plugin.modify({"admin_comment": None, "priority": 9}, priority=0).code == 0


@pytest.mark.parametrize(
    "record",
    [{"partition": "other"}, {"partition": "dl,other"}, {"tres_per_job": None}, {"tres_per_job": "gres:nic:1"}],
)
def test_holds_of_jobs_that_are_not_headways_are_not_written_down(plugin: LuaPlugin, record: dict[str, object]) -> None:
    assert plugin.modify({"admin_comment": None, **record}, priority=0).code == 0
    assert written(plugin) == set()


@pytest.mark.parametrize("change", [{"priority": 0}, {"priority": RELEASE}])
@pytest.mark.parametrize("uid", [64030, 2002])
def test_what_others_ask_for_is_no_wish_of_the_user(
    plugin: LuaPlugin, pipe: Pipe, uid: int, change: dict[str, object]
) -> None:
    (plugin.holds / "7").touch()
    (plugin.holds / "8").touch()
    before = written(plugin)

    for job_id in (7, 8, 9):
        assert plugin.modify({"job_id": job_id}, uid=uid, **change).code == 0
    assert (written(plugin), pipe.lines()) == (before, [])


# --- holds by root


@pytest.mark.parametrize(
    ("record", "shown"), [({}, "7"), ({"array_job_id": 7, "array_task_id": 3}, "7_3"), ({"user_id": 0}, "7")]
)
def test_a_hold_by_root_counts_as_one_of_the_user(
    plugin: LuaPlugin, pipe: Pipe, record: dict[str, object], shown: str
) -> None:
    assert plugin.modify(record, uid=0, priority=0).code == 0
    assert written(plugin) == {shown}
    assert pipe.lines() == [f"user-hold {shown}"]


def test_a_hold_by_root_that_cannot_be_written_down_is_refused_rather_than_lost(plugin: LuaPlugin) -> None:
    plugin.holds.rmdir()

    assert plugin.modify({}, uid=0, priority=0).code == HELD


def test_root_takes_back_a_hold_that_was_not_yet_handled(plugin: LuaPlugin, pipe: Pipe) -> None:
    plugin.modify({}, uid=0, priority=0)
    pipe.lines()

    answer = plugin.modify({}, uid=0, priority=RELEASE)

    assert (answer.code, answer.job["priority"]) == (0, str(NO_VAL)), "the job goes on waiting for its nodes"
    assert (written(plugin), pipe.lines()) == (set(), ["user-release 7"])


def test_a_hold_that_is_being_written_into_the_job_is_not_taken_back_by_root(plugin: LuaPlugin) -> None:
    plugin.modify({}, uid=0, priority=0)

    answer = plugin.modify({"admin_comment": "headway:hold headway:user-hold"}, uid=0, priority=RELEASE)

    assert (answer.code, answer.job["priority"], written(plugin)) == (0, str(RELEASE), {"7"})


@pytest.mark.parametrize("change", [{"priority": 0}, {"priority": RELEASE}])
@pytest.mark.parametrize(
    ("record", "mark"),
    [
        ({"admin_comment": "headway:user-hold"}, None),
        ({"admin_comment": "headway:pinned", "priority": 9}, None),
        ({"admin_comment": None, "priority": 9}, None),
        ({}, "headway:hold"),  # a hold comes with the mark in one change, by a watchdog that root has started
    ],
)
def test_other_changes_by_root_pass_without_a_hold(
    plugin: LuaPlugin, pipe: Pipe, change: dict[str, object], record: dict[str, object], mark: str | None
) -> None:
    (plugin.holds / "8").touch()

    assert plugin.modify(record, uid=0, admin_comment=mark, **change).code == 0
    assert (written(plugin), pipe.lines()) == ({"8"}, [])


@pytest.mark.parametrize("lease", ["of a controller of root", "stale", "none"])
def test_a_controller_and_a_watchdog_that_run_as_root_hold_jobs_for_headway(
    plugin: LuaPlugin, pipe: Pipe, lease: str
) -> None:
    if lease == "of a controller of root":
        plugin.beat(controller_uid=0)
    if lease == "stale":
        plugin.beat(age_s=1000)
    if lease == "none":
        (plugin.runtime_dir / "lease").unlink()
    (plugin.holds / "8").touch()

    for job_id in (7, 8):
        assert plugin.modify({"job_id": job_id}, uid=0, priority=0).code == 0  # scontrol uhold
        assert plugin.modify({"job_id": job_id}, uid=0, priority=RELEASE).code == 0
    assert (written(plugin), pipe.lines()) == ({"8"}, [])


def test_others_do_not_move_the_begin_time_of_a_users_job(plugin: LuaPlugin) -> None:
    later = int(time.time()) + 3600
    record = '{job_id = 7, user_id = 1001, priority = 0, admin_comment = "headway:user-hold"}'
    others = f"slurm_job_modify({{priority = {NO_VAL}, begin_time = {later}}}, {record}, {{}}, 2002)"

    answer = plugin.modify({"admin_comment": "headway:user-hold"}, before=others, priority=RELEASE)

    assert int(answer.job["begin_time"]) < later


def test_a_user_takes_back_a_hold_that_was_not_yet_handled(plugin: LuaPlugin, pipe: Pipe) -> None:
    plugin.modify({}, priority=0)

    answer = plugin.modify({}, priority=RELEASE)

    assert (answer.code, answer.job["priority"]) == (0, str(NO_VAL)), "the job goes on waiting for its nodes"
    assert written(plugin) == set()
    assert plugin.modify({}, priority=RELEASE).code == HELD


def test_a_hold_that_is_being_written_into_the_job_is_not_taken_back(plugin: LuaPlugin) -> None:
    plugin.modify({}, priority=0)

    assert plugin.modify({"admin_comment": "headway:hold headway:user-hold"}, priority=RELEASE).code == HELD
    assert written(plugin) == {"7"}


@pytest.mark.parametrize("lease", ["fresh", "stale"])
@pytest.mark.parametrize("record", [{"admin_comment": "headway:user-hold"}, {"admin_comment": None}])
def test_a_release_takes_the_hold_out_of_the_folder(plugin: LuaPlugin, lease: str, record: dict[str, object]) -> None:
    (plugin.holds / "7").touch()
    plugin.beat(age_s=0 if lease == "fresh" else 1000)

    assert plugin.modify(record, priority=RELEASE).code == 0
    assert written(plugin) == set()


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"submit_time": 1700000015, "restart_cnt": 2}, "1700000015 2 1001\n"),
        ({"submit_time": 1700000015}, "1700000015 0 1001\n"),
        ({"restart_cnt": 2}, ""),
        (
            {"submit_time": 1700000015, "admin_comment": "x headway:id=rk2t9a0f headway:hold"},
            "1700000015 0 1001 rk2t9a0f\n",
        ),
        # a site's script had copied the comment of another job
        (
            {"submit_time": 1700000015, "admin_comment": "headway:id=a headway:id=b headway:hold"},
            "1700000015 0 1001 b\n",
        ),
        ({"submit_time": 1700000015, "admin_comment": "headway:id=A/../b headway:hold"}, "1700000015 0 1001\n"),
        ({"submit_time": 1700000015, "admin_comment": f"headway:id={'a' * 17} headway:hold"}, "1700000015 0 1001\n"),
    ],
)
def test_a_hold_says_which_job_it_is_for(plugin: LuaPlugin, record: dict[str, object], text: str) -> None:
    assert plugin.modify(record, priority=0).code == 0
    assert (plugin.holds / "7").read_text() == text


HOLD_JOBS = (
    "for id = 1, 50 do\n"
    "local record = {job_id = id, user_id = 1001, priority = 0, array_job_id = 0, array_task_id = 4294967294, "
    'admin_comment = "headway:hold"}\n'
    "show(slurm_job_modify({priority = 0, nice = 4294967294}, record, {}, 1001), {})\n"
    "end"
)


FREE = 'priority = 9, partition = "dl", tres_per_node = "gres:gpu:1", array'


def test_no_more_holds_are_written_down_than_the_lease_has_room_for(plugin: LuaPlugin) -> None:
    plugin.beat(holds_room=3)

    answers = [line for line in plugin.lua(f"{HOLD_JOBS}\n{HOLD_JOBS}") if line.startswith("code")]

    assert written(plugin) == {"1", "2", "3"}
    assert (answers.count("code\t0"), answers.count(f"code\t{HELD}")) == (6, 94)


def test_holds_that_slurm_keeps_by_itself_take_no_room_while_the_controller_is_away(plugin: LuaPlugin) -> None:
    plugin.beat(age_s=1000, holds_room=3)

    answers = plugin.lua(
        f"{HOLD_JOBS.replace('headway:hold', '').replace('1, 50', '101, 150').replace('priority = 0, array', FREE)}\n{HOLD_JOBS}"
    )

    assert written(plugin) == {"1", "2", "3"}
    codes = [line for line in answers if line.startswith("code")]
    assert (codes[:50].count("code\t0"), codes[50:].count("code\t0")) == (50, 3)


def test_a_hold_of_a_placed_job_that_slurm_finds_impossible_is_written_down_for_the_watchdog_too(
    plugin: LuaPlugin,
) -> None:
    plugin.beat(age_s=1000)

    assert plugin.modify({"admin_comment": "headway:pinned", "priority": 0}, priority=0).code == 0
    assert written(plugin) == {"7"}


def test_what_lies_in_a_holds_place_is_replaced(plugin: LuaPlugin, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (plugin.holds / "7").symlink_to(tmp_path / "other")
    os.mkfifo(plugin.holds / ".new")

    assert plugin.modify({}, priority=0).code == 0
    assert (plugin.holds / "7").is_file()
    assert (tmp_path / "other").read_text() == "kept"


def test_a_pipe_in_the_leases_place_delays_no_submission(plugin: LuaPlugin) -> None:
    (plugin.runtime_dir / "lease").unlink()
    os.mkfifo(plugin.runtime_dir / "lease")

    assert untouched(plugin.submit())


REMEMBERED = """
local function find(call, name, seen)
    for index = 1, 60 do
        local found, value = debug.getupvalue(call, index)
        if found == nil then return nil end
        if found == name then return value end
        if type(value) == "function" and not seen[value] then
            seen[value] = true
            local within = find(value, name, seen)
            if within then return within end
        end
    end
end
local count = 0
for _ in pairs(find(slurm_job_modify, "begin_times", {})) do count = count + 1 end
print("remembered\\t" .. count)
"""


@pytest.mark.parametrize("begin_s", [-60, 3600])
def test_begin_times_that_users_gave_are_not_remembered_for_ever(plugin: LuaPlugin, begin_s: int) -> None:
    plugin.script.write_text(plugin.script.read_text().replace("MOST_BEGIN_TIMES = 10000", "MOST_BEGIN_TIMES = 20"))
    jobs = (
        "for id = 1, 500 do\n"
        "local record = {job_id = id, user_id = 1001, priority = 0, admin_comment = 'headway:user-hold'}\n"
        f"slurm_job_modify({{priority = {NO_VAL}, begin_time = {int(time.time()) + begin_s}}}, record, {{}}, 1001)\n"
        "end"
    )

    (line,) = plugin.lua(jobs + REMEMBERED)

    assert 0 < int(line.split("\t")[1]) <= 20


@pytest.mark.parametrize("change", [{"priority": RELEASE}, {"nice": 2147483698}])
def test_a_user_who_releases_a_hold_gives_headway_time_to_take_over(
    plugin: LuaPlugin, pipe: Pipe, change: dict[str, object]
) -> None:
    before = int(time.time() - 0.1)  # Lua reads a clock that is behind by up to a tick of the kernel

    answer = plugin.modify({"admin_comment": "x headway:user-hold"}, **change)

    assert answer.code == 0
    assert before + 5 <= int(answer.job["begin_time"]) <= time.time() + 5
    assert pipe.lines() == ["user-release 7"]


def test_a_begin_time_that_comes_with_the_release_counts(plugin: LuaPlugin) -> None:
    later = int(time.time()) + 3600

    answer = plugin.modify({"admin_comment": "headway:user-hold"}, priority=RELEASE, begin_time=later)

    assert answer.job["begin_time"] == str(later)


def test_a_begin_time_from_the_submission_counts(plugin: LuaPlugin) -> None:
    later = int(time.time()) + 3600
    submitted = plugin.submit(priority=0, begin_time=later)

    answer = plugin.modify({"admin_comment": submitted.job["admin_comment"]}, priority=RELEASE)

    assert submitted.admin_comment == f"headway:user-hold headway:begin={later}"
    assert answer.job["begin_time"] == str(later)


def test_a_begin_time_given_while_on_hold_counts_more(plugin: LuaPlugin) -> None:
    later = int(time.time()) + 3600
    comment = f"headway:user-hold headway:begin={later + 3600}"
    earlier = (
        f"slurm_job_modify({{priority = {NO_VAL}, begin_time = {later}}}, "
        f'{{job_id = 7, user_id = 1001, priority = 0, admin_comment = "{comment}"}}, {{}}, 1001)'
    )

    answer = plugin.modify({"admin_comment": comment}, before=earlier, priority=RELEASE)

    assert answer.job["begin_time"] == str(later)
