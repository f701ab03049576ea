"""job_submit.lua under every Lua of this machine."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.slurm.lua_plugin import NO_VAL, RELEASE, Bare, LuaPlugin, interpreters

HELD = 2042
LUAS = interpreters()

pytestmark = pytest.mark.skipif(not LUAS, reason="no Lua here; Slurm's packages bring liblua5.1")


@pytest.fixture(params=sorted(LUAS))
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> LuaPlugin:
    plugin = LuaPlugin(LUAS[request.param], tmp_path)
    plugin.beat()
    return plugin


class Pipe:
    """The wake pipe, and the controller's end of it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def lines(self) -> list[str]:
        try:
            return os.read(self.fd, 65536).decode().splitlines()
        except BlockingIOError:
            return []

    def fill(self) -> None:
        try:
            while True:
                os.write(self.fd, b"x")
        except BlockingIOError:
            return


@pytest.fixture
def pipe(plugin: LuaPlugin) -> Iterator[Pipe]:
    pipe = Pipe(plugin.runtime_dir / "wake")
    yield pipe
    os.close(pipe.fd)


def untouched(answer: object) -> bool:
    return answer.code == 0 and "admin_comment" not in answer.job and answer.job["priority"] == "4294967294"  # type: ignore[attr-defined]


# --- who wants no profile

# What slurmctld gives scripts for a job's environment: writing into it sets a variable of the job.
NOTES_ENVIRONMENT = (
    "local environment = setmetatable({}, {__newindex = function(_, k, v) print('log\\tenv\\t' .. k .. '=' .. v) end})"
)


@pytest.mark.parametrize(
    ("comment", "noted"),
    [
        ("headway=off", "HEADWAY_PROFILE=off"),
        ("mine, headway=off;x", "HEADWAY_PROFILE=off"),
        ("my run headway=preemptible+off", "HEADWAY_PROFILE=off"),
        ("headway=preemptible", ""),
        ("headway", ""),
        (None, ""),
    ],
)
@pytest.mark.parametrize("partition", ["dl", "other"])
def test_a_word_in_the_comment_is_passed_on_to_the_nodes(
    plugin: LuaPlugin, comment: str | None, noted: str, partition: str
) -> None:
    answer = plugin.submit(NOTES_ENVIRONMENT, comment=comment, partition=partition, environment=Bare("environment"))

    assert answer.logged("env") == noted
    assert (answer.job.get("admin_comment") == "headway:hold") == (partition == "dl")


def test_a_slurm_that_gives_no_environment_holds_the_job_all_the_same(plugin: LuaPlugin) -> None:
    fixed = "local environment = setmetatable({}, {__newindex = function() error('read-only') end})"
    answer = plugin.submit(fixed, comment="headway=off", environment=Bare("environment"))

    assert answer.job["admin_comment"] == "headway:hold"
    assert "read-only" in answer.logged("error")


# --- what is asked for by options

OPTION = "_SLURM_SPANK_OPTION_headway_headway_"
PREEMPTIBLE = f"{OPTION}preemptible=(null)"


def spank_environment(*entries: str) -> Bare:
    """As slurmctld shows it to scripts: numbered from 0."""
    return Bare("{" + ", ".join(f"[{number}] = {quoted(entry)}" for number, entry in enumerate(entries)) + "}")


def quoted(text: str) -> str:
    return '"' + text.replace("\n", "\\n") + '"'


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("preemptible=(null)",), "headway=preemptible"),
        (("preemptible=",), "headway=preemptible"),
        (("profile=off",), "headway=off"),
        (("max_gpus=8", "min_gpus=2", "preemptible=(null)"), "headway=preemptible+min-gpus:2+max-gpus:8"),
        (("profile=off", "max_gpus=0016"), "headway=off+max-gpus:16"),
    ],
)
@pytest.mark.parametrize("comment", [None, "", "my run, headway: fast"])
@pytest.mark.parametrize("lease", ["fresh", "stale"])
def test_options_become_a_word_of_the_comment_whether_the_controller_is_there_or_not(
    plugin: LuaPlugin, options: tuple[str, ...], word: str, comment: str | None, lease: str
) -> None:
    plugin.beat(age_s=0 if lease == "fresh" else 86400)

    answer = plugin.submit(spank_job_env=spank_environment(*(OPTION + option for option in options)), comment=comment)

    assert (answer.code, answer.job["comment"]) == (0, f"{comment} {word}" if comment else word)
    assert answer.job["priority"] == ("0" if lease == "fresh" else "4294967294")


@pytest.mark.parametrize(
    "entry",
    [
        f"{OPTION}min_gpus=many",
        f"{OPTION}min_gpus=0",
        f"{OPTION}min_gpus=-1",
        f"{OPTION}min_gpus=1.5",
        f"{OPTION}min_gpus=1000000",
        f"{OPTION}min_gpus=2 admin",
        f"{OPTION}min_gpus=2\nx",
        f"{OPTION}min_gpus=",
        f"{OPTION}profile=on",
        f"{OPTION}profile=",
        f"{OPTION}elsewhere=1",
        "_SLURM_SPANK_OPTION_other_headway_preemptible=(null)",
        f"X{PREEMPTIBLE}",
        "PATH=/bin",
        "",
    ],
)
def test_what_is_no_option_of_ours_leaves_no_trace(plugin: LuaPlugin, entry: str) -> None:
    assert "comment" not in plugin.submit(spank_job_env=spank_environment(entry)).job
    both = plugin.submit(spank_job_env=spank_environment(entry, PREEMPTIBLE))
    assert both.job["comment"] == "headway=preemptible"


def test_what_the_comment_says_already_is_not_said_again(plugin: LuaPlugin) -> None:
    options = spank_environment(PREEMPTIBLE, f"{OPTION}min_gpus=2")

    again = plugin.submit(spank_job_env=options, comment="headway=min-gpus:2+preemptible mine")
    overruled = plugin.submit(spank_job_env=options, comment="headway=preemptible+min-gpus:2 headway=min-gpus:4")
    half = plugin.submit(spank_job_env=options, comment="headway=min-gpus:4+preemptible")

    assert again.job["comment"] == "headway=min-gpus:2+preemptible mine"
    assert overruled.job["comment"] == "headway=preemptible+min-gpus:2 headway=min-gpus:4 headway=min-gpus:2"
    assert half.job["comment"] == "headway=min-gpus:4+preemptible headway=min-gpus:2"


@pytest.mark.parametrize(("length", "fits"), [(1004, True), (1005, False)])
def test_a_comment_that_slurm_would_refuse_is_not_made(plugin: LuaPlugin, length: int, fits: bool) -> None:
    own = "x" * length
    options = spank_environment(PREEMPTIBLE)

    answer = plugin.submit(spank_job_env=options, comment=own)

    assert answer.code == 0
    assert answer.job["comment"] == (f"{own} headway=preemptible" if fits else own)
    assert ("shorten --comment by 1 bytes" in answer.logged("user")) == (not fits)


def test_who_wants_no_profile_gets_none_even_where_the_comment_has_no_room(plugin: LuaPlugin) -> None:
    options = spank_environment(f"{OPTION}profile=off")

    answer = plugin.submit(
        NOTES_ENVIRONMENT, spank_job_env=options, comment="x" * 1024, environment=Bare("environment")
    )

    assert answer.logged("env") == "HEADWAY_PROFILE=off"


@pytest.mark.parametrize("script", [None, "#!/bin/sh"])
def test_jobs_of_srun_and_salloc_get_the_word_too(plugin: LuaPlugin, script: str | None) -> None:
    answer = plugin.submit(spank_job_env=spank_environment(f"{OPTION}profile=off"), script=script)

    assert answer.job["comment"] == "headway=off"


def test_an_error_over_options_holds_the_job_all_the_same(plugin: LuaPlugin) -> None:
    answer = plugin.submit(spank_job_env=True)

    assert (answer.code, answer.job["admin_comment"]) == (0, "headway:hold")
    assert "headway: options" in answer.logged("error")


def test_a_sites_refusal_comes_before_our_words(plugin: LuaPlugin, tmp_path: Path) -> None:
    site = tmp_path / "site.lua"
    site.write_text(
        "function slurm_job_submit(job) job.comment = 'site' return job.account and 0 or -1 end\n"
        f'function slurm_job_modify() return 0 end\ndofile("{plugin.script}")\n'
    )
    plugin.script = site
    options = spank_environment(PREEMPTIBLE)

    assert plugin.submit(spank_job_env=options).job["comment"] == "site"
    assert plugin.submit(spank_job_env=options, account="a").job["comment"] == "site headway=preemptible"


# --- which jobs are held


@pytest.mark.parametrize(
    "request_",
    [
        {"tres_per_node": "gres:gpu:2"},
        {"tres_per_node": None, "tres_per_job": "gres:gpu:12"},
        {"tres_per_node": None, "tres_per_task": "gres/gpu=1"},
        {"tres_per_node": None, "tres_per_task": "cpu=2,gres/gpu:a100=1"},
        {"tres_per_node": None, "tres_per_socket": "gres:gpu:1"},
        {"tres_per_node": "gres:nic:1,gres:gpu:a100:2"},
        {"tres_per_node": None, "gres": "gpu"},
        {"tres_per_node": "gres/gpu"},
    ],
)
def test_a_batch_job_with_gpus_in_any_form_is_held(plugin: LuaPlugin, pipe: Pipe, request_: dict[str, str]) -> None:
    answer = plugin.submit(**request_)

    assert (answer.code, answer.job["priority"], answer.job["admin_comment"]) == (0, "0", "headway:hold")
    assert pipe.lines() == ["submit"]


@pytest.mark.parametrize(
    "other",
    [
        {"tres_per_node": None},
        {"tres_per_node": "gres:gpu:0"},
        {"tres_per_node": "gres:nic:2"},
        {"tres_per_node": "gres:gpu_mem:4"},
        {"tres_per_node": "none"},
        {"script": None},
        {"script": ""},
        {"het_job_offset": 0},
        {"het_job_offset": 1},
        {"pack_job_offset": 1},
        {"partition": "other"},
        {"partition": "dl,other"},
        {"partition": "DL"},
        {"cron_job": True},
    ],
)
def test_every_other_job_passes_untouched(plugin: LuaPlugin, pipe: Pipe, other: dict[str, object]) -> None:
    answer = plugin.submit(**other)

    assert untouched(answer)
    assert pipe.lines() == []


@pytest.mark.parametrize("partition", [None, "", "dl", "gpu", "gpu,dl"])
def test_partitions_are_managed_when_all_of_them_are(plugin: LuaPlugin, partition: str | None) -> None:
    assert plugin.submit(partition=partition).job["priority"] == "0"


def test_without_a_default_partition_nothing_is_held(plugin: LuaPlugin) -> None:
    lines = plugin.lua(
        'local job = {script = "x", tres_per_node = "gres:gpu:1"}\n'
        "show(slurm_job_submit(job, {other = {flag_default = 0}}, 1), job)"
    )

    assert "field\tpriority\t0" not in lines


def test_other_tools_keep_what_they_wrote_into_the_admin_comment(plugin: LuaPlugin) -> None:
    answer = plugin.submit(admin_comment="ticket=42 cost:7")

    assert answer.job["admin_comment"] == "ticket=42 cost:7 headway:hold"


def test_the_users_own_hold_is_marked_as_theirs(plugin: LuaPlugin, pipe: Pipe) -> None:
    answer = plugin.submit(priority=0)

    assert answer.job["admin_comment"] == "headway:user-hold"
    assert pipe.lines() == []


# --- fail-open


def test_nothing_is_held_without_a_lease(plugin: LuaPlugin) -> None:
    (plugin.runtime_dir / "lease").unlink()

    assert untouched(plugin.submit())


@pytest.mark.parametrize("age_s", [31, 86400, -45, -86400])
def test_nothing_is_held_by_a_stale_lease_or_one_from_the_future(plugin: LuaPlugin, pipe: Pipe, age_s: float) -> None:
    plugin.beat(age_s=age_s)  # one from the future comes nearer while Lua starts

    assert untouched(plugin.submit())
    assert pipe.lines() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "time=abc\nstale_after=30\npartitions=dl\ncontroller_uid=0\n",
        "time={now}\nstale_after=0\npartitions=dl\ncontroller_uid=0\n",
        "time={now}\nstale_after=1e308\npartitions=dl\ncontroller_uid=0\n",
        "time={now}\nstale_after=nan\npartitions=dl\ncontroller_uid=0\n",
        "time={now}\nstale_after=30\npartitions=dl\n",
        "time={now}\nstale_after=30\ncontroller_uid=0\n",
        "time={now}\nstale_after=30\npartitions=\ncontroller_uid=0\n",
        "\0\0\0\0",
        "=" * 70000,
    ],
)
def test_nothing_is_held_by_a_broken_lease(plugin: LuaPlugin, text: str) -> None:
    (plugin.runtime_dir / "lease").write_text(text.replace("{now}", str(int(time.time()))))

    assert untouched(plugin.submit())


def test_an_error_in_the_script_lets_the_job_through_and_is_logged(plugin: LuaPlugin) -> None:
    answer = plugin.submit("os.time = function() error('clock is broken') end")

    assert untouched(answer)
    assert "clock is broken" in answer.logged("error")


# --- the wake pipe


@pytest.mark.parametrize("kind", ["absent", "no reader"])
def test_a_pipe_that_nobody_reads_holds_nobody_up(plugin: LuaPlugin, kind: str) -> None:
    wake = plugin.runtime_dir / "wake"
    if kind == "no reader":
        os.mkfifo(wake)

    assert plugin.submit().job["priority"] == "0"
    assert wake.exists() == (kind == "no reader")


def test_a_full_pipe_is_not_written_to(plugin: LuaPlugin, pipe: Pipe) -> None:
    # Given a controller that renews its lease but reads nothing, and a pipe filled to the brim
    pipe.fill()
    plugin.beat(room=0)

    # When a job is submitted, then it is held as ever (a write would have blocked for good)
    assert plugin.submit().job["priority"] == "0"


def test_no_more_than_a_fourth_of_the_room_is_used_until_the_next_lease(plugin: LuaPlugin, pipe: Pipe) -> None:
    plugin.beat(room=100)

    plugin.lua(
        "for _ = 1, 50 do\n"
        'slurm_job_submit({script = "x", tres_per_node = "gres:gpu:1"}, {dl = {flag_default = 1}}, 1)\n'
        "end"
    )

    assert pipe.lines() == ["submit"] * 3  # 3 x 7 bytes of 25


# --- changes by users


@pytest.mark.parametrize("change", [{"priority": RELEASE}, {"priority": 100}, {"nice": 2147483698}])
def test_users_cannot_release_what_headway_holds(plugin: LuaPlugin, change: dict[str, object]) -> None:
    answer = plugin.modify({}, **change)

    assert answer.code == HELD
    assert "headway why 7" in answer.logged("info")
    assert answer.logged("user") == ""  # Slurm before 23.02 cannot show it, and logs an error about it


def test_users_cannot_move_the_begin_time_of_what_headway_holds(plugin: LuaPlugin) -> None:
    answer = plugin.modify({"array_job_id": 7, "array_task_id": 3}, begin_time=int(time.time()) + 3600)

    assert answer.code == HELD
    assert "scontrol hold 7_3" in answer.logged("info")


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
def test_a_users_hold_is_written_down_and_told_to_the_controller(
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


@pytest.mark.parametrize("lease", ["fresh", "stale", "none"])
def test_a_hold_that_cannot_be_written_down_is_refused_rather_than_lost(plugin: LuaPlugin, lease: str) -> None:
    plugin.holds.rmdir()
    plugin.beat(age_s=0 if lease == "fresh" else 1000)
    if lease == "none":
        (plugin.runtime_dir / "lease").unlink()

    answer = plugin.modify({}, priority=0)

    assert answer.code == HELD
    assert "try again" in answer.logged("info")


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
@pytest.mark.parametrize("uid", [0, 64030, 2002])
def test_what_others_ask_for_is_no_wish_of_the_user(
    plugin: LuaPlugin, pipe: Pipe, uid: int, change: dict[str, object]
) -> None:
    (plugin.holds / "7").touch()
    (plugin.holds / "8").touch()
    before = written(plugin)

    for job_id in (7, 8, 9):
        assert plugin.modify({"job_id": job_id}, uid=uid, **change).code == 0
    assert (written(plugin), pipe.lines()) == (before, [])


def test_others_do_not_move_the_begin_time_of_a_users_job(plugin: LuaPlugin) -> None:
    later = int(time.time()) + 3600
    record = '{job_id = 7, user_id = 1001, priority = 0, admin_comment = "headway:user-hold"}'
    others = f"slurm_job_modify({{priority = {NO_VAL}, begin_time = {later}}}, {record}, {{}}, 2002)"

    answer = plugin.modify({"admin_comment": "headway:user-hold"}, before=others, priority=RELEASE)

    assert int(answer.job["begin_time"]) < later


def test_a_user_takes_back_a_hold_that_nobody_has_seen_to(plugin: LuaPlugin, pipe: Pipe) -> None:
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


def test_a_pipe_in_the_leases_place_holds_nobody_up(plugin: LuaPlugin) -> None:
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
for _ in pairs(find(slurm_job_modify, "begin_wished", {})) do count = count + 1 end
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
def test_a_user_who_takes_the_own_hold_off_gives_headway_time_to_take_over(
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

    assert submitted.job["admin_comment"] == f"headway:user-hold headway:begin={later}"
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


# --- beside a site's own script


def test_a_site_script_that_loads_ours_runs_first_and_its_refusals_stand(plugin: LuaPlugin, tmp_path: Path) -> None:
    site = tmp_path / "site.lua"
    site.write_text(
        "function slurm_job_submit(job) if job.account == nil then return -1 end job.qos = 'site' return 0 end\n"
        "function slurm_job_modify(job, record, parts, uid) return uid == 5 and -1 or 0 end\n"
        f'dofile("{plugin.script}")\n'
    )
    plugin.script = site

    assert plugin.submit().code == -1
    answer = plugin.submit(account="a")
    assert (answer.job["qos"], answer.job["priority"]) == ("site", "0")
    assert plugin.modify({}, uid=5).code == -1
    assert plugin.modify({}, priority=RELEASE).code == HELD


def test_loading_the_script_again_does_not_stack_it(plugin: LuaPlugin, pipe: Pipe) -> None:
    plugin.submit(f'dofile("{plugin.script}")')

    assert pipe.lines() == ["submit"]
