"""The plan of an undo: for any slurm.conf, an installation and its undo give the bytes that an operator would have without both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import read_slurm_conf
from controller.slurm.configuration.editing import ADDED_HEADING
from slurm.setup.files import shipped_sources
from slurm.setup.plan import make_plan
from slurm.setup.record import parse_record
from slurm.setup.slurmctld import SlurmctldState, UnknownSlurmctld, parse_settings
from slurm.setup.undo_plan import Installed, UndoPlan, make_undo_plan

ETC = Path("/etc/slurm")
CONF, LUA, CHAINED = ETC / "slurm.conf", ETC / "job_submit.lua", ETC / "headway.lua"
HOOK = ETC / "headway" / installed_files.EVENT_HOOK
RECORD = ETC / "headway" / "setup.json"
SITE_LUA = "-- the site's\nfunction slurm_job_submit() end\n"
SOURCES = shipped_sources()


@dataclass
class Disk:
    """The files of a machine, in memory."""

    files: dict[Path, str]
    links: set[Path] = field(default_factory=set)
    running: SlurmctldState = None
    task_prolog: Path | None = None
    """The TaskProlog that the operator names for the undo."""

    def read(self, path: Path) -> str | None:
        return self.files.get(path)

    def must_read(self, path: Path) -> str:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def install(self, task_prolog: Path | None = None) -> None:
        conf = read_slurm_conf(CONF, self.must_read)
        for change in make_plan(conf, SOURCES, Path("/run/headway"), self.read, task_prolog).changes:
            assert self.files.get(change.path) == change.before
            self.files[change.path] = change.after

    def plan(self) -> UndoPlan:
        record = parse_record(RECORD, self.read(RECORD))
        conf = read_slurm_conf(CONF, self.must_read)
        installed = Installed(conf, record, SOURCES, self.running, self.links.__contains__, False, self.task_prolog)
        return make_undo_plan(installed, self.read, lambda _: [])

    def undo(self) -> UndoPlan:
        plan = self.plan()
        for change in plan.changes:
            self.files[change.path] = change.after
        for removal in plan.removals:
            del self.files[removal.path]
        return plan


# --- any slurm.conf

WORDS = st.sampled_from(["a", "bf_interval=30", "defer", "partition", "require_timelimit", "x=1"])
LISTS = st.lists(WORDS, min_size=1, max_size=4, unique=True)
GLUE = st.sampled_from([",", ",", ",\\\n", ",\\\n  "])
KEYS = st.sampled_from(["SchedulerParameters", "schedulerparameters", "JobSubmitPlugins", "JOBSUBMITPLUGINS"])
EQUALS = st.sampled_from(["=", " = ", "=  "])
ENDS = st.sampled_from(["", "  ", " # the site's", " SlurmctldDebug=info", "\\\n Epilog=/e"])


@st.composite
def list_lines(draw: st.DrawFn) -> str:
    """Draw a line that sets a list which Headway needs an item of."""
    value = draw(LISTS)
    glue = draw(GLUE)
    text = glue.join(value)
    if draw(st.booleans()) and "\n" not in text:
        text = f'"{text}"'
    if text.endswith('"') or "\n" not in text or "  " not in text:
        return f"{draw(KEYS)}{draw(EQUALS)}{text}{draw(ENDS)}"
    return f"{draw(KEYS)}={text.replace('  ', '')}{draw(ENDS)}"


OTHER = st.sampled_from(
    [
        "",
        "# JobSubmitPlugins=lua",
        "ClusterName=lab",
        "NodeName=n[1-4] CPUs=64 Gres=gpu:8 State=UNKNOWN",
        "PartitionName=gpu Nodes=n[1-4]",
        "# Umlaute äöü\u2028 in a comment",
        "TaskProlog=/opt/site/task.sh",
        "PrologSlurmctld=/opt/site/prolog.sh",
        'EpilogSlurmctld=""',
        "SlurmctldHost=head SlurmctldPort=6817",
        f"SlurmdPort=6818 {ADDED_HEADING}",
        "include more.conf",
        "MailProg=/bin/mail\\",
    ]
)
LINE = st.one_of(OTHER, list_lines())
TEXT = st.builds(
    lambda lines, newline, end: newline.join(lines) + (newline if end else ""),
    st.lists(LINE, max_size=8),
    st.sampled_from(["\n", "\n", "\r\n"]),
    st.booleans(),
)


def disk_of(text: str, more: str, site_lua: bool) -> Disk:
    files = {CONF: text, ETC / "more.conf": more.replace("include more.conf", "# include")}
    files |= {Path("/opt/site/prolog.sh"): "#!/bin/sh\n", Path("/opt/site/task.sh"): "#!/bin/sh\n"}
    return Disk(files | ({LUA: SITE_LUA} if site_lua else {}))


@settings(max_examples=150, deadline=None)
@given(text=TEXT, more=TEXT, site_lua=st.booleans(), task_prolog=st.booleans())
def test_an_undo_gives_every_byte_back(text: str, more: str, site_lua: bool, task_prolog: bool) -> None:
    disk = disk_of(text, more, site_lua)
    before = dict(disk.files)

    disk.task_prolog = Path("/shared/task_prolog.sh") if task_prolog else None
    disk.install(disk.task_prolog)
    disk.undo()
    again = disk.undo()  # a TaskProlog is removed only when the nodes have had the time to forget it

    assert disk.files == before
    assert not again.changes
    assert disk.undo().complete


Edit = Callable[[str], str]
ADDITIONS = st.sampled_from(
    ["# a comment\n", "NodeName=n9 CPUs=4\n", "SlurmdDebug=debug\n", "KillWait=30 # seconds\n", "\n"]
)


@settings(max_examples=100, deadline=None)
@given(lines=st.lists(LINE, max_size=6), additions=st.lists(st.tuples(ADDITIONS, st.integers(0, 7)), max_size=4))
def test_lines_that_an_operator_has_added_since_stay(lines: list[str], additions: list[tuple[str, int]]) -> None:
    blocks = [f"{line}\n" for line in lines if not line.endswith("\\")]
    disk = disk_of("".join(blocks), "", site_lua=False)
    disk.install()
    # Lines go in before the same line of the site, or at the end
    installed = disk.files[CONF]
    wanted = "".join(blocks)
    for addition, at in additions:
        anchor = "".join(blocks[:at]) if at < len(blocks) else None
        if anchor is None or not installed.startswith(anchor) or not wanted.startswith(anchor):
            installed, wanted = installed + addition, wanted + addition
        else:
            installed = anchor + addition + installed[len(anchor) :]
            wanted = anchor + addition + wanted[len(anchor) :]
            blocks.insert(at, addition)
    disk.files[CONF] = installed

    disk.undo()

    assert disk.files[CONF] == wanted


@pytest.mark.parametrize(
    ("text", "change", "wanted"),
    [
        # An item was added to a list that Headway had added to, or to the line that Headway had made
        ("SchedulerParameters=a\n", ("delay=0", "delay=0,b"), "SchedulerParameters=a,b\n"),
        ("SchedulerParameters=a\n", ("=a,", "=z,a,"), "SchedulerParameters=z,a\n"),
        ("SchedulerParameters=a\n", ("delay=0", "delay=10"), "SchedulerParameters=a,batch_sched_delay=10\n"),
        ('SchedulerParameters="a"\n', ("delay=0", "delay=0,b"), 'SchedulerParameters="a,b"\n'),
        ("X=1\n", ("SchedulerParameters=batch_sched_delay=0", "SchedulerParameters=batch_sched_delay=0,b"), None),
        ("JobSubmitPlugins=a\n", ("=a,lua", "=a,job_submit/lua"), "JobSubmitPlugins=a\n"),
        ("JobSubmitPlugins=a\n", ("=a,lua", "=lua,a"), "JobSubmitPlugins=a\n"),
        # The program of Headway was replaced, or its line was commented
        ("X=1\n", (f"PrologSlurmctld={HOOK}", "PrologSlurmctld=/opt/site/prolog.sh"), None),
        ("X=1\n", (f"EpilogSlurmctld={HOOK}", f"EpilogSlurmctld={HOOK} # by us"), None),
        ("X=1\n", (f"EpilogSlurmctld={HOOK}\n", f"EpilogSlurmctld={HOOK} KillWait=30\n"), None),
        # The operator removed it already
        ("SchedulerParameters=a\n", (",batch_sched_delay=0", ""), "SchedulerParameters=a\n"),
        ("X=1\n", ("\n# Headway (headway-setup slurm)\n", ""), "X=1\n"),
    ],
)
def test_a_setting_that_an_operator_has_changed_since_loses_only_what_is_headways(
    text: str, change: tuple[str, str], wanted: str | None
) -> None:
    disk = disk_of(text, "", site_lua=False)
    disk.install()
    assert change[0] in disk.files[CONF]
    disk.files[CONF] = disk.files[CONF].replace(*change)

    disk.undo()

    left = {
        f"PrologSlurmctld={HOOK}": "X=1\nPrologSlurmctld=/opt/site/prolog.sh\n",
        f"EpilogSlurmctld={HOOK}": "X=1\n# by us\n",
        f"EpilogSlurmctld={HOOK}\n": "X=1\nKillWait=30\n",
        "SchedulerParameters=batch_sched_delay=0": "X=1\nSchedulerParameters=b\n",
    }
    assert disk.files[CONF] == (wanted if wanted is not None else left[change[0]])
    assert set(disk.files) == {CONF, ETC / "more.conf", Path("/opt/site/prolog.sh"), Path("/opt/site/task.sh")}


def test_settings_that_were_moved_to_another_file_are_found_there() -> None:
    disk = disk_of("ClusterName=lab\ninclude more.conf\n", "KillWait=30\n", site_lua=False)
    disk.install()
    before, heading, added = disk.files[CONF].partition("\n# Headway (headway-setup slurm)\n")
    disk.files |= {CONF: before, ETC / "more.conf": f"KillWait=30\n{added}"}
    assert heading

    disk.undo()

    assert (disk.files[CONF], disk.files[ETC / "more.conf"]) == (
        "ClusterName=lab\ninclude more.conf\n",
        "KillWait=30\n",
    )


# --- scripts of the site


def test_a_site_script_that_loads_headways_has_to_let_go_first() -> None:
    disk = disk_of("JobSubmitPlugins=lua\n", "", site_lua=True)
    disk.install()
    disk.files[LUA] = SITE_LUA + f'dofile("{CHAINED}")\n'

    (conflict,) = disk.undo().conflicts
    assert f'remove the line dofile("{CHAINED}")' in conflict.text
    assert CHAINED in disk.files, "without the file, the script of the site would fail"

    disk.files[LUA] = SITE_LUA
    assert disk.undo().conflicts == ()
    assert disk.files[CONF] == "JobSubmitPlugins=lua\n"
    assert not {CHAINED, HOOK, RECORD} & set(disk.files)


@pytest.mark.parametrize(
    "line",
    [
        f'pcall(dofile, "{CHAINED}")',
        f'loadfile("{CHAINED}")()',
        f'local H = "{CHAINED}"\ndofile(H)',
        f"dofile [[{CHAINED}]]",
        'dofile(DIR .. "/headway.lua")',
        'dofile(("%sheadway.lua"):format(DIR))',
        'require("headway")',
        f'print("-- not a comment") dofile("{CHAINED}")',
        f'--[[ a comment ]] dofile("{CHAINED}")',
    ],
)
def test_every_way_to_load_headways_script_is_seen(line: str) -> None:
    disk = disk_of("JobSubmitPlugins=lua\n", "", site_lua=True)
    disk.files[LUA] = SITE_LUA + line + "\n"
    disk.install()

    assert not make_plan(read_slurm_conf(CONF, disk.must_read), SOURCES, Path("/run/headway"), disk.read).conflicts
    assert disk.undo().conflicts
    assert CHAINED in disk.files


@pytest.mark.parametrize(
    "comment", ["-- dofile('{}')", "--[[\ndofile('{}')\n]]", "--[==[ ]] dofile('{}') ]==]", "--[[ dofile('{}')"]
)
def test_a_comment_in_the_sites_script_loads_nothing(comment: str) -> None:
    disk = disk_of("JobSubmitPlugins=lua\n", "", site_lua=True)
    disk.files[LUA] = SITE_LUA + comment.format(CHAINED) + "\n"
    disk.install()

    assert make_plan(read_slurm_conf(CONF, disk.must_read), SOURCES, Path("/run/headway"), disk.read).conflicts
    assert not disk.undo().conflicts
    assert CHAINED not in disk.files


def test_a_site_hook_that_names_headways_by_a_variable_has_to_let_go_first() -> None:
    site = Path("/opt/site/prolog.sh")
    disk = disk_of(f"PrologSlurmctld={site}\n", "", site_lua=False)
    disk.install()
    disk.files[site] = '#!/bin/sh\n"$SLURM_ETC/headway/slurmctld_event.sh"\n'

    assert disk.undo().conflicts
    assert HOOK in disk.files


def test_a_site_hook_that_calls_headways_has_to_let_go_first() -> None:
    site = Path("/opt/site/prolog.sh")
    disk = disk_of(f"PrologSlurmctld={site}\n", "", site_lua=False)
    disk.files[site] = f"#!/bin/sh\n{HOOK}\n"
    disk.install()

    plan = disk.undo()
    assert [conflict.key for conflict in plan.conflicts] == ["PrologSlurmctld"]
    assert disk.files[CONF] == f"PrologSlurmctld={site}\n"
    assert HOOK in disk.files, "slurmctld requeues a job whose PrologSlurmctld fails"

    disk.files[site] = "#!/bin/sh\n"
    disk.undo()
    assert HOOK not in disk.files
    assert disk.plan().complete


def test_lua_stays_when_the_site_has_put_its_own_script_in_the_place_of_headways() -> None:
    disk = disk_of("X=1\n", "", site_lua=False)
    disk.install()
    disk.files[LUA] = SITE_LUA

    plan = disk.undo()

    assert "JobSubmitPlugins=lua\n" in disk.files[CONF]
    assert disk.files[LUA] == SITE_LUA
    assert any("is your own script now" in note for note in plan.notes)


def test_lua_does_not_stay_without_any_script() -> None:
    """An operator wrote the lines by hand, after the example; slurmctld would not start without job_submit.lua."""
    disk = disk_of(f"JobSubmitPlugins=a,lua\nPrologSlurmctld={HOOK}\n", "", site_lua=False)
    disk.install()

    plan = disk.undo()

    assert disk.files[CONF] == "JobSubmitPlugins=a\n"
    assert any("slurmctld does not start without one" in note for note in plan.notes)


# --- what still runs


def test_files_that_slurmctld_still_runs_wait_for_its_restart() -> None:
    disk = disk_of("X=1\n", "", site_lua=False)
    disk.install()
    disk.running = parse_settings(
        f"JobSubmitPlugins        = lua\nPrologSlurmctld[0]      = {HOOK}\nEpilogSlurmctld[0]      = {HOOK}\n"
    )

    first = disk.undo()
    assert disk.files[CONF] == "X=1\n"
    assert set(first.waiting) == {LUA, HOOK}
    assert {LUA, HOOK} <= set(disk.files)
    assert any("restart slurmctld" in step for step in first.next_steps)
    assert disk.undo().waiting == first.waiting

    disk.running = parse_settings("JobSubmitPlugins        = (null)\nPrologSlurmctld         = (null)\n")
    assert not disk.undo().waiting
    assert not {LUA, HOOK, RECORD} & set(disk.files)


def test_files_that_an_unseen_slurmctld_may_run_stay() -> None:
    disk = disk_of("X=1\n", "", site_lua=False)
    disk.install()
    disk.running = UnknownSlurmctld("scontrol: no such program")

    for _ in range(2):
        plan = disk.undo()
        assert disk.files[CONF] == "X=1\n"
        assert set(plan.waiting) == {LUA, HOOK}
        assert not plan.removals
        assert not plan.complete
        assert any("none answers (scontrol: no such program)" in note for note in plan.notes)

    disk.running = None
    assert set(disk.undo().waiting) == set()
    assert not {LUA, HOOK, RECORD} & set(disk.files)


@pytest.mark.parametrize(
    ("shared", "named"),
    [(Path("/shared/task_prolog.sh"), Path("/shared/task_prolog.sh")), (ETC / "task_prolog.sh", None)],
)
def test_a_task_prolog_waits_for_the_nodes(shared: Path, named: Path | None) -> None:
    disk = disk_of("X=1\n", "", site_lua=False)
    disk.task_prolog = named
    disk.install(shared)

    first = disk.undo()
    assert (disk.files[CONF], first.waiting) == ("X=1\n", (shared,))
    assert "scontrol reconfigure" in first.next_steps
    disk.undo()
    assert shared not in disk.files


@pytest.mark.parametrize("shared", [Path("/shared/task_prolog.sh"), ETC / ".." / "shared" / "task_prolog.sh"])
def test_a_task_prolog_that_other_clusters_may_use_stays_unless_it_is_named(shared: Path) -> None:
    disk = disk_of("X=1\n", "", site_lua=False)
    disk.install(shared)

    plan = disk.undo()

    assert disk.files[CONF] == "X=1\n"
    assert shared in disk.files
    assert not plan.waiting
    assert [note for note in plan.notes if str(shared) in note and "other clusters may use" in note]
    assert disk.undo().complete

    disk.task_prolog = shared
    disk.undo()
    assert shared not in disk.files


# --- what is not exactly what was installed


def test_a_script_that_was_changed_is_kept_as_a_copy() -> None:
    disk = disk_of("X=1\n", "", site_lua=False)
    disk.install()
    disk.files[LUA] += "-- our own lines\n"

    assert {removal.path: removal.keep_copy for removal in disk.plan().removals} == {
        LUA: True,
        HOOK: False,
        RECORD: False,
    }


def test_a_link_to_a_script_that_headway_did_not_write_stays() -> None:
    disk = disk_of("JobSubmitPlugins=lua\n", "", site_lua=False)
    disk.files[LUA] = SOURCES.lua
    disk.links.add(LUA)

    plan = disk.undo()

    assert LUA in disk.files
    assert any("a link that was not made by this program" in note for note in plan.notes)


def test_an_installation_without_record_is_judged_by_the_form_of_its_settings() -> None:
    disk = disk_of("SchedulerParameters=a\n", "", site_lua=False)
    disk.install()
    del disk.files[RECORD]

    plan = disk.undo()

    # Nothing shows who added the item of the list
    assert disk.files[CONF] == "SchedulerParameters=a,batch_sched_delay=0\n"
    assert any("no record whether Headway added it" in note for note in plan.notes)
    disk = disk_of("X=1\n", "", site_lua=False)
    disk.install()
    del disk.files[RECORD]
    disk.undo()
    assert disk.files == {
        CONF: "X=1\n",
        **{path: text for path, text in disk_of("", "", False).files.items() if path != CONF},
    }


def upgraded(text: str, *, site_lua: bool = False) -> Disk:
    """Return an installation of a version that made no record, on which this version was installed."""
    disk = disk_of(text, "", site_lua)
    disk.install()
    del disk.files[RECORD]
    disk.files[CHAINED if site_lua else LUA] += "-- of an older version\n"
    disk.install()
    assert RECORD in disk.files
    return disk


def test_an_upgrade_of_an_installation_without_record_begins_one_that_is_not_complete() -> None:
    disk = upgraded("ClusterName=c\n")
    before = {CONF: "ClusterName=c\n"} | {p: t for p, t in disk_of("", "", False).files.items() if p != CONF}

    plan = disk.undo()

    assert disk.files == before
    assert not any("before the installation" in note for note in plan.notes)
    assert disk.undo().notes == ()


def test_an_upgrade_without_record_leaves_an_item_of_a_list_with_a_note() -> None:
    disk = upgraded("JobSubmitPlugins=lua\nSchedulerParameters=a\n", site_lua=True)

    plan = disk.undo()

    assert disk.files[CONF] == "JobSubmitPlugins=lua\nSchedulerParameters=a,batch_sched_delay=0\n"
    assert [note.partition(". There is no record")[0] for note in plan.notes if "no record" in note] == [
        f"left behind: batch_sched_delay=0 in SchedulerParameters ({CONF}, line 2)",
        "JobSubmitPlugins keeps lua",
    ]


def test_edits_of_a_record_that_is_not_complete_are_taken_back_too() -> None:
    disk = upgraded("ClusterName=c\n")
    disk.files[CONF] = disk.files[CONF].replace("SchedulerParameters=batch_sched_delay=0\n", "SchedulerParameters=b\n")
    disk.install()
    assert "SchedulerParameters=b,batch_sched_delay=0\n" in disk.files[CONF]

    plan = disk.undo()

    assert disk.files[CONF] == "ClusterName=c\nSchedulerParameters=b\n"
    assert not plan.notes[1:]


def test_undoing_and_installing_again_and_again_changes_nothing_more() -> None:
    disk = disk_of("SchedulerParameters=a", "", site_lua=False)
    before = dict(disk.files)
    for _ in range(3):
        disk.install()
        disk.undo()
        assert disk.files == before
    disk.files[CONF] = "SchedulerParameters=a,batch_sched_delay=0\n"  # now it is the site's own
    disk.install()
    disk.undo()
    assert disk.files[CONF] == "SchedulerParameters=a,batch_sched_delay=0\n"
