"""job_submit.lua: which jobs are held at their submission, and that it fails open."""

import os
import re
import time
from pathlib import Path

import pytest

from controller.base.partition_size import PartitionSize
from tests.unit.slurm.lua_plugin import HELD, NO_LUA, NO_VAL, RELEASE, LuaPlugin, Pipe, checked_by_slurm, untouched

pytestmark = NO_LUA


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

    assert (answer.code, answer.job["priority"], answer.admin_comment) == (0, "0", "headway:hold")
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


@pytest.mark.parametrize("partition", [None, "", "dl", "gpu"])
def test_jobs_of_managed_partitions_are_held(plugin: LuaPlugin, partition: str | None) -> None:
    assert plugin.submit(partition=partition).job["priority"] == "0"


def test_without_a_default_partition_nothing_is_held(plugin: LuaPlugin) -> None:
    lines = plugin.lua(
        'local job = {script = "x", tres_per_node = "gres:gpu:1"}\n'
        "show(slurm_job_submit(job, {other = {flag_default = 0}}, 1), job)"
    )

    assert "field\tpriority\t0" not in lines


def test_other_tools_keep_what_they_wrote_into_the_admin_comment(plugin: LuaPlugin) -> None:
    answer = plugin.submit(admin_comment="ticket=42 cost:7")

    assert answer.admin_comment == "ticket=42 cost:7 headway:hold"


MANY_JOBS = """
for _ = 1, 2000 do
    local job = {script = "x", tres_per_node = "gres:gpu:1", priority = 4294967294, het_job_offset = 4294967294}
    slurm_job_submit(job, {dl = {flag_default = 1}}, 1001)
    print(string.match(job.admin_comment, "^headway:id=(%w+) headway:hold$"))
end
"""


def test_no_job_has_the_birthmark_of_another_one(plugin: LuaPlugin) -> None:
    """Also when slurmctld starts anew, and within one second."""
    words = [word for _ in range(3) for word in plugin.lua(MANY_JOBS)]

    assert {re.fullmatch("[0-9a-z]{8}", word) is not None for word in words} == {True}
    assert len(words) == 6000
    assert len(set(words)) > 5000, "in one second there are 46,656"
    firsts = {plugin.lua(MANY_JOBS.replace("2000", "1"))[0] for _ in range(10)}
    assert len(firsts) >= 9  # ten words of one second may be alike


@pytest.mark.parametrize("request_", [{}, {"priority": 0}, {"tres_per_node": "gres:gpu:9"}])
def test_every_job_that_gets_a_mark_gets_a_birthmark(plugin: LuaPlugin, request_: dict[str, object]) -> None:
    assert "headway:id=" in plugin.submit(**request_).job["admin_comment"]


def test_a_birthmark_that_was_copied_from_another_job_does_not_count(plugin: LuaPlugin) -> None:
    copied = plugin.submit(admin_comment="headway:id=abc").job["admin_comment"]

    assert re.fullmatch(r"headway:id=abc headway:id=[0-9a-z]{8} headway:hold", copied)


def test_the_users_own_hold_is_marked_as_theirs(plugin: LuaPlugin, pipe: Pipe) -> None:
    answer = plugin.submit(priority=0)

    assert answer.admin_comment == "headway:user-hold"
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


# --- jobs that no node can run


SIZES = (PartitionSize("dl", 32, 8, 64, 256_000, (("a100", 4), ("1g.10gb", 4))), PartitionSize("gpu", 8, 4, 32, 64_000))


@pytest.mark.parametrize(
    "request_",
    [
        {"tres_per_node": "gres:gpu:9"},
        {"tres_per_node": "gres/gpu=9"},
        {"tres_per_node": "gres:gpu:9k"},
        {"tres_per_node": "gres:gpu:a100:5"},
        {"tres_per_node": "gres/gpu:a100=5"},
        {"tres_per_node": "gres:gpu:v100"},
        {"tres_per_node": "gpu:a100:4,gpu:1g.10gb:5"},
        {"tres_per_node": None, "tres_per_task": "gres:gpu:9"},
        {"tres_per_node": None, "tres_per_job": "gres:gpu:33"},
        {"tres_per_node": None, "tres_per_job": "gres:gpu:v100:1"},
        {"tres_per_node": None, "tres_per_job": "gres:gpu:9", "max_nodes": 1},
        {"cpus_per_task": 65},
        {"pn_min_cpus": 65},
        {"pn_min_memory": 256_001},
        {"num_tasks": 65, "max_nodes": 1},
        {"num_tasks": 9, "cpus_per_task": 8, "max_nodes": 1},
        {"partition": "gpu,dl", "tres_per_node": "gres:gpu:9"},
    ],
)
def test_a_job_larger_than_every_node_is_left_to_slurm_which_refuses_it(
    plugin: LuaPlugin, pipe: Pipe, request_: dict[str, object]
) -> None:
    plugin.beat(sizes=SIZES)

    assert checked_by_slurm(plugin.submit(**request_))
    assert pipe.lines() == ["submit"]  # if Slurm accepts it, the controller takes it over


@pytest.mark.parametrize(
    "request_",
    [
        {"tres_per_node": "gres:gpu:8"},
        {"tres_per_node": "gres:gpu:a100:4,gres:gpu:1g.10gb:4"},
        {"tres_per_node": "gres:gpu:1g.10gb"},
        {"tres_per_node": "gres:gpu:1,gres:nic:99"},
        {"tres_per_node": None, "tres_per_job": "gres:gpu:32"},
        {"tres_per_node": None, "tres_per_job": "gres:gpu:a100:16"},
        {"cpus_per_task": 64, "pn_min_cpus": 64, "pn_min_memory": 256_000},
        {"cpus_per_task": 65534, "pn_min_cpus": 65534, "num_tasks": NO_VAL, "max_nodes": 1},
        {"pn_min_memory": 2**63 + 2000},  # by CPU
        {"pn_min_memory": 2**64 - 2},  # not given
        {"num_tasks": 65},
        {"num_tasks": 65, "max_nodes": 1, "overcommit": 1},
    ],
)
def test_a_job_that_may_fit_is_held(plugin: LuaPlugin, request_: dict[str, object]) -> None:
    plugin.beat(sizes=SIZES)

    assert plugin.submit(**request_).job["priority"] == "0"


def test_without_the_size_of_a_partition_every_job_is_held(plugin: LuaPlugin) -> None:
    plugin.beat(sizes=SIZES[:1])

    assert plugin.submit(partition="gpu", tres_per_node="gres:gpu:9").job["priority"] == "0"
    plugin.beat()
    assert plugin.submit(tres_per_node="gres:gpu:9").job["priority"] == "0"


def test_a_hold_by_the_user_stays_one_whatever_the_size(plugin: LuaPlugin) -> None:
    plugin.beat(sizes=SIZES)

    assert plugin.submit(tres_per_node="gres:gpu:9", priority=0).admin_comment == "headway:user-hold"


# --- the wake pipe


@pytest.mark.parametrize("kind", ["absent", "no reader"])
def test_a_pipe_that_is_not_read_delays_no_submission(plugin: LuaPlugin, kind: str) -> None:
    wake = plugin.runtime_dir / "wake"
    if kind == "no reader":
        os.mkfifo(wake)

    assert plugin.submit().job["priority"] == "0"
    assert wake.exists() == (kind == "no reader")


def test_a_full_pipe_is_not_written_to(plugin: LuaPlugin, pipe: Pipe) -> None:
    # Given a controller that renews its lease but reads nothing, and a full pipe
    pipe.fill()
    plugin.beat(room=0)

    # When a job is submitted, then it is held as usual (a write would have blocked for ever)
    assert plugin.submit().job["priority"] == "0"


def test_no_more_than_a_fourth_of_the_room_is_used_until_the_next_lease(plugin: LuaPlugin, pipe: Pipe) -> None:
    plugin.beat(room=100)

    plugin.lua(
        "for _ = 1, 50 do\n"
        'slurm_job_submit({script = "x", tres_per_node = "gres:gpu:1"}, {dl = {flag_default = 1}}, 1)\n'
        "end"
    )

    assert pipe.lines() == ["submit"] * 3  # 3 x 7 bytes of 25


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


@pytest.mark.parametrize("result", ["", "return nil", "return true", "return {}", "return 'ok'"])
def test_a_site_function_without_a_number_as_its_result_lets_the_job_pass_on(
    plugin: LuaPlugin, tmp_path: Path, result: str
) -> None:
    """Slurm takes such a result as success."""
    site = tmp_path / "site.lua"
    site.write_text(
        f"function slurm_job_submit(job) if job.account == 'no' then return -1 end {result} end\n"
        f"function slurm_job_modify(job) if job.account == 'no' then return -1 end {result} end\n"
        f'dofile("{plugin.script}")\n'
    )
    plugin.script = site

    assert plugin.submit().job["priority"] == "0"
    assert plugin.modify({}, priority=RELEASE).code == HELD
    assert (plugin.submit(account="no").code, plugin.modify({}, account="no").code) == (-1, -1)


def test_loading_the_script_again_does_not_stack_it(plugin: LuaPlugin, pipe: Pipe) -> None:
    plugin.submit(f'dofile("{plugin.script}")')

    assert pipe.lines() == ["submit"]
