"""headway-setup slurm: what it would change, and what it leaves alone."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controller.base.config import load_settings
from controller.slurm.configuration import installed_files
from slurm.setup.draft import FileChange
from slurm.setup.files import default_slurm_conf, read_installed, shipped_job_side, shipped_sources, write
from tests.unit.slurm.setup.site import BARE, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def open_site() -> Iterator[Site]:
    """A site whose folder every user may enter; pytest's own folders are closed."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Site(Path(name))


@pytest.mark.parametrize("options", [(), ("--check",), ("--check", "--json")])
def test_looking_shows_the_change_and_writes_nothing(site: Site, options: tuple[str, ...]) -> None:
    result = site.setup(*options)

    assert result.exit_code == 1
    assert "+SchedulerParameters=bf_interval=30,batch_sched_delay=0" in result.output
    assert site.files() == {"slurm.conf": BARE}


def test_applying_installs_everything_and_then_nothing_is_left_to_do(site: Site) -> None:
    applied = site.setup("--apply", "--runtime-dir", "/run/elsewhere")

    assert applied.exit_code == 0, applied.output
    hook = site.folder / "headway" / "slurmctld_event.sh"
    assert {key: site.value(key) for key in ("JobSubmitPlugins", "PrologSlurmctld", "EpilogSlurmctld")} == {
        "JobSubmitPlugins": "lua",
        "PrologSlurmctld": str(hook),
        "EpilogSlurmctld": str(hook),
    }
    assert os.access(hook, os.X_OK)
    for script in (hook, site.folder / "job_submit.lua"):
        assert installed_files.runtime_dir_of(script.read_text()) == Path("/run/elsewhere")
    again = site.setup("--check", "--runtime-dir", "/run/elsewhere")
    assert (again.exit_code, "everything is in place" in again.output) == (0, True)


def test_applying_twice_changes_nothing_more(site: Site) -> None:
    site.setup("--apply")
    before = site.files()

    assert site.setup("--apply").exit_code == 0
    assert site.files() == before


@pytest.mark.parametrize("lua", [None, "-- the site's own\n"])
def test_installed_scripts_keep_their_runtime_dir_unless_another_is_named(site: Site, lua: str | None) -> None:
    # given scripts with a runtime folder of the site, one of which is of an earlier version
    if lua is not None:
        (site.folder / "job_submit.lua").write_text(lua)
    site.setup("--apply", "--runtime-dir", "/run/hw")
    scripts = [
        site.folder / ("headway.lua" if lua else "job_submit.lua"),
        site.folder / "headway" / "slurmctld_event.sh",
    ]
    newest = scripts[0].read_text()
    scripts[0].write_text(newest.replace(f"version {installed_files.VERSION}", "version 1"))

    # when they are brought up to date
    site.setup("--apply")

    # then they stay connected to the controller
    assert scripts[0].read_text() == newest
    assert [installed_files.runtime_dir_of(script.read_text()) for script in scripts] == [Path("/run/hw")] * 2

    # and when another folder is named, it counts
    site.setup("--apply", "--runtime-dir", "/run/other")
    assert [installed_files.runtime_dir_of(script.read_text()) for script in scripts] == [Path("/run/other")] * 2


@pytest.mark.parametrize("there", [None, 'local RUNTIME_DIR = "/run/theirs"\n', "a b"])
def test_scripts_have_the_usual_runtime_dir_where_none_of_headways_names_one(site: Site, there: str | None) -> None:
    if there is not None:
        text = shipped_sources().lua.replace("/run/headway", there) if there == "a b" else there
        (site.folder / "job_submit.lua").write_text(text)

    site.setup("--apply")

    hook = site.folder / "headway" / "slurmctld_event.sh"
    assert installed_files.runtime_dir_of(hook.read_text()) == Path("/run/headway")


def test_what_was_there_is_kept_beside_it_with_owner_and_mode(site: Site) -> None:
    site.conf.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(site.conf, 1234, 4321)

    answer = json.loads(site.setup("--apply", "--json").output)

    (change,) = [change for change in answer["changes"] if change["path"] == str(site.conf)]
    backup = Path(change["backup"])
    assert backup.read_text() == BARE
    for path in (site.conf, backup):
        assert path.stat().st_mode & 0o777 == 0o640
        assert os.geteuid() != 0 or (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_bytes_that_are_no_utf_8_stay_as_they_are(site: Site, options: tuple[str, ...]) -> None:
    # given comments in Latin-1, one of them on a line that changes, and in a file that is included
    before = b"# caf\xe9\r\nClusterName=lab\nSchedulerParameters=bf_interval=30 # l\xe4nger\nInclude more.conf\n# \xff"
    site.conf.write_bytes(before)
    (site.folder / "more.conf").write_bytes(b"# f\xfcr alle\nPrologSlurmctld=/opt/caf\xe9.sh\n")

    # when Headway is installed, and taken back
    shown, applied = site.setup(*options), site.setup("--apply", *options)
    with_headway = site.conf.read_bytes()
    taken_back = site.undo("--apply", *options)

    # then only what Headway needs changes, and everything is shown
    assert (shown.exit_code, applied.exit_code, taken_back.exit_code) == (1, 1, 0), taken_back.output
    assert all("nger" in result.output and "Traceback" not in result.output for result in (shown, applied, taken_back))
    changed = before.replace(b"bf_interval=30", b"bf_interval=30,batch_sched_delay=0")
    assert with_headway.startswith(changed + b"\n")
    assert site.conf.read_bytes() == before


def test_a_file_is_written_with_the_bytes_that_were_read(tmp_path: Path) -> None:
    path = tmp_path / "plugstack.conf"
    path.write_bytes(b"# caf\xe9 \xc3\xa9\n")
    text = read_installed(path) or ""

    write(FileChange(path, text, f"{text}optional headway.so\n", 0o644))

    assert path.read_bytes() == b"# caf\xe9 \xc3\xa9\noptional headway.so\n"


def test_a_slurm_conf_behind_a_link_is_changed_there(site: Site) -> None:
    real = site.folder / "real"
    real.mkdir()
    site.conf.rename(real / "cluster.conf")
    site.conf.symlink_to(real / "cluster.conf")

    assert site.setup("--apply").exit_code == 0
    assert site.conf.is_symlink()
    assert "JobSubmitPlugins=lua" in (real / "cluster.conf").read_text()
    assert (site.folder / "job_submit.lua").is_file()


def test_other_submit_plugins_stay_in_the_list(site: Site) -> None:
    site.conf.write_text(BARE + "jobsubmitplugins=require_timelimit,partition # ours\n")

    site.setup("--apply")

    assert "jobsubmitplugins=require_timelimit,partition,lua # ours\n" in site.conf.read_text()


def with_luac(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a compiler of Lua on PATH that refuses texts with the word BROKEN."""
    programs = site.folder / "bin"
    programs.mkdir()
    luac = programs / "luac"
    luac.write_text("#!/bin/sh\nif grep -q BROKEN; then echo \"luac: stdin:2: '=' expected\" >&2; exit 1; fi\n")
    luac.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


def test_a_script_that_slurmctld_could_not_load_needs_a_decision(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with_luac(site, monkeypatch)
    own = site.folder / "job_submit.lua"
    own.write_text(f'-- the site\'s\nBROKEN\ndofile("{site.folder}/headway.lua")\n')

    result = site.setup("--apply")

    assert result.exit_code == 1
    assert f"{own} is not valid Lua (stdin:2: '=' expected)" in result.output
    own.write_text(own.read_text().replace("BROKEN", ""))
    assert site.setup("--apply").exit_code == 0


def test_a_script_with_a_fault_that_does_not_run_yet_is_not_switched_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a script of the site that loads Headway's, is not in use, and is not valid Lua
    with_luac(site, monkeypatch)
    own = site.folder / "job_submit.lua"
    own.write_text(f'-- the site\'s\nBROKEN\ndofile("{site.folder}/headway.lua")\n')
    # when everything is applied, then slurmctld does not get a script with which it would not start
    result = site.setup("--apply")
    assert (result.exit_code, site.value("JobSubmitPlugins")) == (1, "")
    assert f"{own} is not valid Lua (stdin:2: '=' expected)" in result.output
    assert f"Slurm does not run {own} at present" in result.output
    # when it is corrected, then it is switched on
    own.write_text(own.read_text().replace("BROKEN", ""))
    assert site.setup("--apply").exit_code == 0
    assert site.value("JobSubmitPlugins") == "lua"


def test_a_broken_script_of_ours_is_replaced(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with_luac(site, monkeypatch)
    site.setup("--apply")
    with (site.folder / "job_submit.lua").open("a") as file:
        file.write("BROKEN\n")

    assert site.setup("--apply").exit_code == 0
    assert "BROKEN" not in (site.folder / "job_submit.lua").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give the file to another user")
def test_a_script_that_slurm_user_cannot_read_needs_a_decision(site: Site) -> None:
    for folder in (site.folder, *site.folder.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o001)
    site.conf.write_text(BARE + "SlurmUser=daemon\n")
    site.setup("--apply")
    script = site.folder / "job_submit.lua"
    assert site.setup("--check").exit_code == 0

    script.chmod(0o600)
    result = site.setup("--check")

    assert result.exit_code == 1
    assert f"{script} cannot be read by daemon" in result.output


def test_a_sites_own_lua_is_never_written_over(site: Site) -> None:
    site.conf.write_text(BARE + "JobSubmitPlugins=lua\n")
    own = site.folder / "job_submit.lua"
    own.write_text("-- the site's\n")

    result = site.setup("--apply")

    # The script of Headway is beside it, and the site has to add the line that loads it
    chained = site.folder / "headway.lua"
    assert (result.exit_code, own.read_text()) == (1, "-- the site's\n")
    assert f'dofile("{chained}")' in result.output.replace("\n", "")
    assert installed_files.script_version(chained.read_text()) == installed_files.VERSION
    own.write_text(f'-- the site\'s\ndofile("{chained}")\n')
    assert site.setup("--check").exit_code == 0


@pytest.mark.parametrize(("plugins", "moved_away"), [("", True), ("JobSubmitPlugins=partition\n", False)])
def test_a_sites_own_lua_that_does_not_run_is_not_switched_on(site: Site, plugins: str, moved_away: bool) -> None:
    """It may have a fault, and slurmctld does not start with such a script."""
    site.conf.write_text(BARE + plugins)
    before, own = site.value("JobSubmitPlugins"), site.folder / "job_submit.lua"
    line = f'dofile("{site.folder}/headway.lua")\n'
    for text in ("-- the site's\n", "return slurm.SUCCESS\n" + line):
        own.write_text(text)
        result = site.setup("--apply")

        assert (result.exit_code, site.value("JobSubmitPlugins"), own.read_text()) == (1, before, text)
        assert "needs your decision: JobSubmitPlugins: " in result.output
        assert f"Slurm does not run {own} at present" in result.output

    if moved_away:
        own.rename(site.folder / "unused.lua")
    else:
        own.write_text("-- the site's\n" + line)
    assert site.setup("--apply").exit_code == 0
    assert site.value("JobSubmitPlugins").split(",")[-1] == "lua"


def test_the_line_stands_before_a_final_return_and_after_the_sites_functions(site: Site) -> None:
    own, line = site.folder / "job_submit.lua", f'dofile("{site.folder}/headway.lua")\n'
    site.conf.write_text(BARE + "JobSubmitPlugins=lua\n")
    functions = "function slurm_job_submit()\n  return slurm.SUCCESS\nend\n"
    own.write_text(functions + "return slurm.SUCCESS\n")
    assert "as its last line, but before a final `return`: dofile(" in site.setup("--apply").output

    for wrong, problem in (
        (functions + "return slurm.SUCCESS\n" + line, "line 5 loads Headway's script after the `return` of line 4"),
        (line + functions, "line 1 loads Headway's script, and line 2 defines slurm_job_submit after it"),
    ):
        own.write_text(wrong)
        result = site.setup("--check")
        assert result.exit_code == 1
        assert f"needs your decision: JobSubmitPlugins: {own}: {problem}" in result.output
    own.write_text(functions + line + "return slurm.SUCCESS\n")
    assert site.setup("--check").exit_code == 0


def test_a_new_script_beside_the_sites_own_renews_the_time_at_which_slurmctld_looks(site: Site) -> None:
    """Slurm loads the scripts again only when job_submit.lua is newer than what it has loaded."""
    own, chained = site.folder / "job_submit.lua", site.folder / "headway.lua"
    site.conf.write_text(BARE + "SlurmctldHost=one\nSlurmctldHost=two\n")
    own.write_text(f'dofile("{chained}")\n')
    os.utime(own, (1e9, 1e9))

    assert site.setup("--check").exit_code == 1
    assert own.stat().st_mtime == 1e9

    chained.write_text("-- Headway job_submit.lua, version 0\n")
    answer = json.loads(site.setup("--apply", "--json").output)
    assert own.stat().st_mtime >= chained.stat().st_mtime
    assert own.read_text() == f'dofile("{chained}")\n'
    assert answer["next_steps"][0].endswith(
        f"{chained}, {site.folder}/headway/slurmctld_event.sh; then there: touch {own}"
    )
    assert f"{own} gets a new time of change" in answer["notes"][0]

    os.utime(own, (1e9, 1e9))
    assert site.setup("--apply").exit_code == 0
    assert own.stat().st_mtime == 1e9


def test_a_line_that_is_commented_out_loads_nothing(site: Site) -> None:
    (site.folder / "job_submit.lua").write_text('-- dofile("/etc/slurm/headway.lua")\n')

    assert site.setup("--apply").exit_code == 1


def test_an_older_script_of_ours_is_brought_up_to_date(site: Site) -> None:
    site.setup("--apply")
    script = site.folder / "job_submit.lua"
    script.write_text("-- Headway job_submit.lua, version 0\n")

    assert site.setup("--apply").exit_code == 0
    assert installed_files.script_version(script.read_text()) == installed_files.VERSION


@pytest.mark.parametrize("key", ["PrologSlurmctld", "EpilogSlurmctld", "TaskProlog"])
def test_a_sites_own_hook_stays_and_the_way_to_call_ours_is_shown(site: Site, key: str) -> None:
    site.conf.write_text(BARE + f"{key}=/opt/site/hook.sh\n")

    result = site.setup("--apply", "--task-prolog", str(site.folder / "task_prolog.sh"))

    assert (result.exit_code, site.value(key)) == (1, "/opt/site/hook.sh")
    assert f"needs your decision: {key}: {key} is already set to /opt/site/hook.sh" in result.output


def test_a_sites_hook_that_calls_ours_is_fine(site: Site) -> None:
    own = site.folder / "hook.sh"
    own.write_text(f"#!/bin/sh\n{site.folder}/headway/slurmctld_event.sh\n")
    site.conf.write_text(BARE + f"PrologSlurmctld={own}\nEpilogSlurmctld={own}\n")

    assert site.setup("--apply").exit_code == 0


def test_task_prolog_is_only_set_when_asked_for(site: Site) -> None:
    plain = site.setup("--apply")
    assert (plain.exit_code, site.value("TaskProlog")) == (0, "")
    assert "TaskProlog stays as it is" in plain.output

    shared = site.folder / "shared" / "task_prolog.sh"
    asked = site.setup("--apply", "--task-prolog", str(shared))
    assert (asked.exit_code, site.value("TaskProlog")) == (0, str(shared))
    assert os.access(shared, os.X_OK)
    assert "every compute node" in asked.output


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_every_user_reaches_what_is_installed_under_any_umask(open_site: Site, umask: int) -> None:
    """Slurm requeues every batch job while PrologSlurmctld fails, and jobs fail while users cannot run TaskProlog."""
    task_prolog = open_site.folder / "shared" / "headway" / "task_prolog.sh"
    before = os.umask(umask)
    try:
        result = open_site.setup("--apply", "--task-prolog", str(task_prolog))
    finally:
        os.umask(before)

    assert result.exit_code == 0, result.output
    for script in (open_site.folder / "headway" / "slurmctld_event.sh", task_prolog):
        for path in (script, *script.relative_to(open_site.folder).parents):
            assert (open_site.folder / path).stat().st_mode & 0o777 == 0o755, path


@pytest.mark.skipif(os.geteuid() != 0, reason="slurmctld runs as another user than the owner of the files")
@pytest.mark.parametrize(
    ("closed", "mode", "key"),
    [
        ("headway", 0o700, "PrologSlurmctld: "),
        ("headway/slurmctld_event.sh", 0o644, "PrologSlurmctld: "),
        ("shared", 0o750, "TaskProlog: "),
        ("shared/task_prolog.sh", 0o744, "TaskProlog: "),
    ],
)
def test_a_hook_that_slurm_cannot_run_needs_a_decision(open_site: Site, closed: str, mode: int, key: str) -> None:
    open_site.conf.write_text(BARE + "SlurmUser=daemon\n")
    options = ("--task-prolog", str(open_site.folder / "shared" / "task_prolog.sh"))
    open_site.setup("--apply", *options)
    assert open_site.setup("--check", *options).exit_code == 0

    (open_site.folder / closed).chmod(mode)
    result = open_site.setup("--check", *options)

    assert result.exit_code == 1
    assert f"needs your decision: {key}{open_site.folder}/" in result.output
    assert " cannot be run by " in result.output


def test_task_prolog_names_what_jobs_load_and_where_the_agent_listens(open_site: Site) -> None:
    site = open_site
    shared = site.folder / "task_prolog.sh"
    site.setup("--apply", "--task-prolog", str(shared))
    assert f"JOB_SIDE={shipped_job_side()}\n" in shared.read_text()
    assert "JOB_SOCKET=/run/headway-agent/job.sock\n" in shared.read_text()

    places = ("--job-side", "/shared/jobside", "--job-socket", "/run/elsewhere/job.sock")
    assert site.setup("--apply", "--task-prolog", str(shared), *places).exit_code == 0
    assert "JOB_SIDE=/shared/jobside\nJOB_SOCKET=/run/elsewhere/job.sock\n" in shared.read_text()
    assert site.setup("--check", "--task-prolog", str(shared), *places).exit_code == 0


def test_an_older_task_prolog_is_brought_up_to_date_in_its_place_with_its_own_paths(open_site: Site) -> None:
    shared, site = open_site.folder / "shared" / "task_prolog.sh", open_site
    places = ("--job-side", "/shared/jobside", "--job-socket", "/run/elsewhere/job.sock")
    site.setup("--apply", "--task-prolog", str(shared), *places)
    assert site.setup("--check").exit_code == 0
    current = shared.read_text()

    shared.write_text(current.replace(f"version {installed_files.VERSION}", "version 3").replace("exit 0", "exit 1"))
    assert "-# Headway TaskProlog, version 3" in site.setup("--check").output
    answer = json.loads(site.setup("--apply", "--json").output)
    assert shared.read_text() == current
    assert answer["next_steps"] == [f"copy {shared} to every compute node that has its own copy of it"]

    # A path that is given replaces the file's own
    assert site.setup("--apply", "--job-side", "/other/jobside").exit_code == 0
    assert "JOB_SIDE=/other/jobside\nJOB_SOCKET=/run/elsewhere/job.sock\n" in shared.read_text()


def test_a_task_prolog_of_the_site_or_out_of_sight_stays(site: Site) -> None:
    site.conf.write_text(BARE + f"TaskProlog={site.folder}\n")  # cannot be read as a file
    result = site.setup("--apply")
    assert (result.exit_code, "note: TaskProlog was not checked: " in result.output) == (0, True)

    own = site.folder / "own.sh"
    own.write_text("#!/bin/sh\n")
    for path in (own, site.folder / "absent.sh"):
        site.conf.write_text(BARE + f"TaskProlog={path}\n")
        assert site.setup("--apply").exit_code == 0
    assert own.read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("option", ["--runtime-dir", "--task-prolog", "--job-side", "--job-socket"])
@pytest.mark.parametrize("path", ["here", "/with space", "/two:paths", "/$(reboot)"])
def test_paths_that_scripts_cannot_hold_are_refused(site: Site, option: str, path: str) -> None:
    result = site.setup("--apply", option, path)

    assert result.exit_code == 2
    assert f"{option} {path}: give an absolute path" in result.output
    assert site.files() == {"slurm.conf": BARE}


def test_a_scheduling_delay_that_the_site_chose_stays(site: Site) -> None:
    site.conf.write_text("SchedulerParameters=batch_sched_delay=10\n")

    result = site.setup("--apply")

    assert site.value("SchedulerParameters") == "batch_sched_delay=10"
    assert "batch_sched_delay=10, which stays" in result.output


@pytest.mark.parametrize(
    ("before", "steps"),
    [
        (BARE, ["systemctl restart slurmctld"]),
        ("PrologSlurmctld=/x\nEpilogSlurmctld=/x\n", ["scontrol reconfigure"]),
    ],
)
def test_the_next_step_is_shown(site: Site, before: str, steps: list[str]) -> None:
    site.conf.write_text(before)

    answer = json.loads(site.setup("--check", "--json").output)

    assert [step.split("   ")[0] for step in answer["next_steps"][1:]] == steps


def test_backup_slurmctlds_need_the_scripts_too(site: Site) -> None:
    site.conf.write_text("SlurmctldHost=one\nSlurmctldHost=two\n")

    steps = json.loads(site.setup("--check", "--json").output)["next_steps"]

    assert steps[0].startswith("copy to every machine that slurmctld may run on (one, two): ")
    assert str(site.folder / "job_submit.lua") in steps[0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--slurm-conf", "/nonexistent/slurm.conf"), "/nonexistent/slurm.conf: no such file"),
        (("--runtime-dir", "run"), "--runtime-dir run: give an absolute path"),
    ],
)
def test_what_cannot_be_determined_is_said_with_the_mend(site: Site, options: tuple[str, ...], problem: str) -> None:
    result = site.setup(*options)
    as_json = site.setup(*options, "--json")

    assert (result.exit_code, as_json.exit_code) == (2, 2)
    assert problem in result.output
    assert problem in json.loads(as_json.output)["error"]


def test_check_and_apply_are_one_or_the_other(site: Site) -> None:
    assert site.setup("--check", "--apply").exit_code == 2


def test_slurms_own_variable_names_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/somewhere/slurm.conf")

    assert default_slurm_conf() == Path("/somewhere/slurm.conf")


# --- what is shipped


def test_the_example_settings_are_valid() -> None:
    folder = Path(__file__).parents[4] / "slurm" / "plugin" / "example"

    assert load_settings(folder / "controller.toml").policy_address == "unix:///run/headway-policy/policy.sock"


def test_the_example_slurm_conf_needs_nothing_more_than_the_files(site: Site) -> None:
    example = (Path(__file__).parents[4] / "slurm" / "plugin" / "example" / "slurm.conf").read_text()
    site.conf.write_text(example.replace("/etc/slurm", str(site.folder)))

    answer = json.loads(site.setup("--check", "--json").output)

    assert [Path(change["path"]).name for change in answer["changes"]] == [
        "job_submit.lua",
        "slurmctld_event.sh",
        "setup.json",
    ]
    assert all(change["new"] for change in answer["changes"])
    assert answer["conflicts"] == []


def test_scripts_are_found_where_the_package_is_installed() -> None:
    assert shipped_sources().lua.startswith("-- Headway job_submit.lua, version")
