"""job_submit.lua: options of the SPANK plugin, and jobs that are not to be measured."""

from pathlib import Path

import pytest

from controller.observe.user_options import read_user_options
from tests.unit.slurm.lua_plugin import NO_LUA, Bare, LuaPlugin

pytestmark = NO_LUA


# --- jobs that are not to be measured

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
    assert (answer.admin_comment == "headway:hold") == (partition == "dl")


def test_a_slurm_that_gives_no_environment_holds_the_job_all_the_same(plugin: LuaPlugin) -> None:
    fixed = "local environment = setmetatable({}, {__newindex = function() error('read-only') end})"
    answer = plugin.submit(fixed, comment="headway=off", environment=Bare("environment"))

    assert answer.admin_comment == "headway:hold"
    assert "read-only" in answer.logged("error")


# --- options that Headway does not know


@pytest.mark.parametrize(
    ("comment", "unknown"),
    [
        ("headway=preemptable", "preemptable"),
        ("my run headway=preemptible+max-gpu:8+steps", "max-gpu:8, steps"),
        ("headway=min-gpus:8+max-gpus:2", "min-gpus:8+max-gpus:2"),
        ("headway=min-gpus:1000001", "min-gpus:1000001"),
        ("headway=steps:0", "steps:0"),
        ("headway=off;x", "off;x"),
        (f"headway={'x' * 1000}", "x" * 200),
        ("headway=%s%d", "%s%d"),
        ("headway=preemptible+off+min-gpus:02+max-gpus:1000000+steps:999999999+epochs:3", ""),
        ("headway=preemptable headway=", "preemptable"),
        ("headway: fast, HEADWAY=x", ""),
        ("headway=", ""),
        ("", ""),
        (None, ""),
    ],
)
@pytest.mark.parametrize("partition", ["dl", "other"])
def test_its_user_hears_of_an_unknown_option_at_submission(
    plugin: LuaPlugin, comment: str | None, unknown: str, partition: str
) -> None:
    answer = plugin.submit(comment=comment, partition=partition)

    said = answer.logged("user")
    assert f"have no effect: {unknown}. Headway knows off, preemptible" in said if unknown else said == ""
    assert answer.job.get("comment") == comment  # the job is submitted as it was written
    assert (answer.admin_comment == "headway:hold") == (partition == "dl")
    # by the same rules, the controller says so in `headway why`
    assert bool(read_user_options(comment or "").unknown) == bool(unknown)


def test_on_newer_slurm_its_user_hears_of_an_unknown_option_in_a_change(plugin: LuaPlugin) -> None:
    assert plugin.modify({}, comment="headway=preemptable").logged("user") == ""
    plugin.script.write_text(plugin.script.read_text().replace("slurm.ESLURM_JOB_HELD", "2042"))

    assert "no effect: preemptable." in plugin.modify({}, comment="headway=preemptable").logged("user")
    assert plugin.modify({}, name="new").logged("user") == ""


# --- options of the SPANK plugin

OPTION = "_SLURM_SPANK_OPTION_headway_headway_"
PREEMPTIBLE = f"{OPTION}preemptible=(null)"


def spank_environment(*entries: str) -> Bare:
    """Return the SPANK environment as slurmctld passes it to scripts: numbered from 0."""
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
    assert ("Shorten --comment by 1 bytes" in answer.logged("user")) == (not fits)


def test_a_job_is_not_measured_even_where_the_comment_has_no_room(plugin: LuaPlugin) -> None:
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

    assert (answer.code, answer.admin_comment) == (0, "headway:hold")
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
