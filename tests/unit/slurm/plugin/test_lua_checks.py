"""job_submit.lua: which jobs are left to Slurm's check at their submission, and how."""

import time

import pytest

from controller.base.partition_size import NodeKind, PartitionSize
from tests.unit.slurm.lua_plugin import NO_LUA, NO_VAL, LuaPlugin, Pipe, checked_by_slurm, untouched

pytestmark = NO_LUA

SIZES = (PartitionSize("dl", 32, 8, 64, 256_000, (("a100", 4), ("1g.10gb", 4))), PartitionSize("gpu", 8, 4, 32, 64_000))
LIMITS = "parts.dl.total_nodes = 4 parts.dl.total_cpus = 256 parts.dl.max_cpus_per_node = {most}"


@pytest.fixture(autouse=True)
def known_sizes(plugin: LuaPlugin) -> None:
    plugin.beat(sizes=SIZES)


@pytest.mark.parametrize(
    "condition",
    [
        {"features": "slow&rack2"},
        {"req_nodes": "n1"},
        {"exc_nodes": "n[1-3]"},
        {"reservation": "exam"},
        {"mem_per_tres": "gres:gpu:65536"},
        {"min_mem_per_cpu": 102_400, "pn_min_memory": 2**63 + 102_400},
        {"pn_min_tmp_disk": 1024},
        {"partition": "dl,gpu"},
        {"tres_per_task": "gres/gpu:1", "num_tasks": 2, "cpus_per_task": 3, "pn_min_cpus": 7},
        {"tres_per_job": "gres/gpu:2", "pn_min_cpus": 2},
        {"tres_per_job": "gres/gpu:2", "min_nodes": 2, "num_tasks": 4, "pn_min_cpus": 3},
        {"tres_per_job": "gres/gpu:2", "min_nodes": 2, "pn_min_cpus": 2},
        {"tres_per_task": "gres/gpu:1", "min_nodes": 2, "num_tasks": 8, "ntasks_per_node": 2, "pn_min_cpus": 3},
        {"tres_per_job": "gres/gpu:17", "num_tasks": 2},
    ],
)
def test_a_job_with_conditions_on_its_nodes_is_checked_by_slurm(
    plugin: LuaPlugin, pipe: Pipe, condition: dict[str, object]
) -> None:
    assert checked_by_slurm(plugin.submit(**condition))
    assert pipe.lines() == ["submit"]  # the controller takes it over


@pytest.mark.parametrize(
    "request_",
    [
        {"min_nodes": 5},
        {"min_cpus": 257},
        {"cpus_per_task": 9},
        {"pn_min_cpus": 9},
        {"ntasks_per_node": 3, "cpus_per_task": 3},
        {"min_nodes": 4, "tres_per_node": "gres:gpu:9"},
    ],
)
def test_a_job_that_exceeds_its_partition_is_checked_by_slurm(plugin: LuaPlugin, request_: dict[str, object]) -> None:
    assert checked_by_slurm(plugin.submit(limits=LIMITS.format(most=8), **request_))


@pytest.mark.parametrize("most", [0, 4294967295])
def test_a_partition_without_a_limit_of_cpus_is_as_large_as_its_nodes(plugin: LuaPlugin, most: int) -> None:
    limits = LIMITS.format(most=most)

    assert plugin.submit(limits=limits, ntasks_per_node=64).job["priority"] == "0"
    assert checked_by_slurm(plugin.submit(limits=limits, ntasks_per_node=65))


@pytest.mark.parametrize(
    "request_",
    [
        {"features": "", "req_nodes": "", "exc_nodes": "", "reservation": "", "mem_per_tres": ""},
        {"pn_min_tmp_disk": NO_VAL, "min_mem_per_cpu": NO_VAL, "min_nodes": NO_VAL, "min_cpus": NO_VAL},
        {"pn_min_tmp_disk": 0, "min_mem_per_cpu": 0},
        {"min_nodes": 4, "min_cpus": 256, "tres_per_node": "gres:gpu:8", "ntasks_per_node": 65534},
        {"prefer": "slow"},
        {"tres_per_task": "gres/gpu:1", "num_tasks": 2, "cpus_per_task": 3, "pn_min_cpus": 6},
        {"tres_per_job": "gres/gpu:2", "min_nodes": 2, "num_tasks": 4, "pn_min_cpus": 2},
        {"tres_per_job": "gres/gpu:4", "min_nodes": 4, "num_tasks": NO_VAL, "cpus_per_task": 2, "pn_min_cpus": 2},
        {"tres_per_task": "gres/gpu:1", "min_nodes": 2, "num_tasks": 4, "ntasks_per_node": 2, "pn_min_cpus": 2},
        {"tres_per_node": "gres:gpu:1", "min_nodes": 2, "num_tasks": 2, "pn_min_cpus": 8},
        {"tres_per_job": "gres/gpu:16", "num_tasks": 2},
        {"tres_per_job": "gres/gpu:17", "num_tasks": NO_VAL},
    ],
)
def test_any_other_job_is_held_at_once(plugin: LuaPlugin, request_: dict[str, object]) -> None:
    assert plugin.submit(limits=LIMITS.format(most=8), **request_).job["priority"] == "0"


def test_more_gpus_on_all_nodes_than_the_partition_has_are_checked_without_limits(plugin: LuaPlugin) -> None:
    assert checked_by_slurm(plugin.submit(min_nodes=5, tres_per_node="gres:gpu:8"))


def test_conditions_are_checked_without_sizes(plugin: LuaPlugin) -> None:
    plugin.beat()

    assert checked_by_slurm(plugin.submit(features="slow"))
    assert plugin.submit().job["priority"] == "0"


# --- nodes of several kinds


A100, H100 = NodeKind(3, 8, 64, 256_000, (("a100", 8),)), NodeKind(1, 4, 64, 512_000, (("h100", 4),))
CPU = NodeKind(8, 0, 128, 1_024_000)
MIXED = PartitionSize("dl", 28, 8, 128, 1_024_000, (("a100", 8), ("h100", 4)), (A100, H100, CPU))


@pytest.mark.parametrize(
    "request_",
    [
        {"tres_per_node": "gres:gpu:1", "cpus_per_task": 65},
        {"tres_per_node": "gres:gpu:1", "pn_min_memory": 512_001},
        {"tres_per_node": "gres:gpu:5", "pn_min_memory": 256_001},
        {"tres_per_node": "gres:gpu:h100:1", "min_nodes": 2},
        {"tres_per_node": "gres:gpu:a100:1,gres:gpu:h100:1"},
        {"tres_per_node": "gres:gpu:1", "min_nodes": 5},
        {"tres_per_node": None, "tres_per_job": "gres:gpu:1", "cpus_per_task": 65},
        {"tres_per_node": None, "tres_per_task": "gres:gpu:1", "pn_min_memory": 512_001},
        {"tres_per_node": None, "tres_per_job": "gres:gpu:5", "pn_min_memory": 256_001, "max_nodes": 1},
    ],
)
def test_a_job_for_which_too_few_nodes_have_everything_is_checked_by_slurm(
    plugin: LuaPlugin, request_: dict[str, object]
) -> None:
    plugin.beat(sizes=(MIXED,))

    assert checked_by_slurm(plugin.submit(**request_))


@pytest.mark.parametrize(
    "request_",
    [
        {"tres_per_node": "gres:gpu:1", "cpus_per_task": 64, "min_nodes": 4},
        {"tres_per_node": "gres:gpu:a100:8", "min_nodes": 3},
        {"tres_per_node": "gres:gpu:4", "pn_min_memory": 512_000},
        {"tres_per_node": None, "tres_per_job": "gres:gpu:12", "cpus_per_task": 64, "min_nodes": 4},
    ],
)
def test_a_job_for_which_enough_nodes_have_everything_is_held(plugin: LuaPlugin, request_: dict[str, object]) -> None:
    plugin.beat(sizes=(MIXED,))

    assert plugin.submit(**request_).job["priority"] == "0"


# --- begin times


def test_a_later_begin_time_of_the_user_stays(plugin: LuaPlugin) -> None:
    later = int(time.time()) + 3600
    answer = plugin.submit(features="slow", begin_time=later)

    assert answer.job["begin_time"] == str(later)
    assert answer.job["priority"] == str(NO_VAL)
    assert "admin_comment" not in answer.job


def test_a_job_starts_no_earlier_than_its_user_wants(plugin: LuaPlugin) -> None:
    soon = int(time.time()) + 3
    answer = plugin.submit(f"os.time = function() return {soon - 3} end", features="slow", begin_time=soon)

    assert answer.job["begin_time"] == str(soon + 2)
    assert "admin_comment" not in answer.job  # the controller leaves this time as it is


def test_a_begin_time_that_has_passed_is_none(plugin: LuaPlugin) -> None:
    assert checked_by_slurm(plugin.submit(features="slow", begin_time=int(time.time()) - 60))


def test_other_tools_keep_what_they_wrote_into_the_admin_comment(plugin: LuaPlugin) -> None:
    comment = plugin.submit(features="slow", admin_comment="ticket=42").admin_comment

    assert comment.startswith("ticket=42 headway:check=")


# --- jobs that are not checked


def test_the_number_of_checks_until_the_next_lease_is_limited(plugin: LuaPlugin) -> None:
    lines = plugin.lua(
        "for _ = 1, 30 do\n"
        'local job = {script = "x", tres_per_node = "gres:gpu:1", features = "slow"}\n'
        "slurm_job_submit(job, {dl = {flag_default = 1}}, 1)\n"
        "print(job.priority)\n"
        "end"
    )

    assert lines == ["nil"] * 20 + ["0"] * 10


def test_a_new_lease_allows_more_checks(plugin: LuaPlugin) -> None:
    lines = plugin.lua(
        "local clock, now = os.time, os.time()\n"
        "local function submit()\n"
        'local job = {script = "x", tres_per_node = "gres:gpu:1", features = "slow"}\n'
        "slurm_job_submit(job, {dl = {flag_default = 1}}, 1)\n"
        "return job.priority\n"
        "end\n"
        "for _ = 1, 20 do submit() end\n"
        "print(submit())\n"
        f'local path = "{plugin.runtime_dir}/lease"\n'
        'local text = io.open(path):read("*a")\n'
        'local file = io.open(path, "w")\n'
        'file:write((string.gsub(text, "time=(%d+)", function(s) return "time=" .. (s + 1) end, 1)))\n'
        "file:close()\n"
        "print(submit())"
    )

    assert lines == ["0", "nil"]


def test_a_hold_by_the_user_stays_one_with_conditions(plugin: LuaPlugin) -> None:
    assert plugin.submit(features="slow", priority=0).admin_comment == "headway:user-hold"


@pytest.mark.parametrize("other", [{"script": None}, {"partition": "other"}, {"tres_per_node": None}])
def test_a_job_that_headway_does_not_schedule_passes_untouched(plugin: LuaPlugin, other: dict[str, object]) -> None:
    answer = plugin.submit(features="slow", **other)

    assert untouched(answer)
    assert "begin_time" not in answer.job


def test_a_job_whose_conditions_cannot_be_read_is_held(plugin: LuaPlugin) -> None:
    assert plugin.submit(min_nodes="three").job["priority"] == "0"
