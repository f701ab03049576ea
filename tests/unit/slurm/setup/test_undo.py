"""headway-setup slurm --undo on files: what it shows, what it writes, and what it leaves behind."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.base.lease import Lease, write_lease
from slurm.setup.cli import app
from tests.unit.slurm.setup.site import BARE, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def without_copies(site: Site) -> dict[str, str]:
    return {name: text for name, text in site.files().items() if "-headway-" not in name}


@pytest.mark.parametrize("options", [(), ("--check",), ("--check", "--json")])
def test_looking_shows_the_change_and_writes_nothing(site: Site, options: tuple[str, ...]) -> None:
    site.setup("--apply")
    before = site.files()

    result = site.undo(*options)

    assert result.exit_code == 1
    assert "-SchedulerParameters=bf_interval=30,batch_sched_delay=0" in result.output
    assert str(site.folder / "job_submit.lua") in result.output
    assert site.files() == before


def test_an_undo_gives_the_files_back_and_names_the_copies(site: Site) -> None:
    site.conf.chmod(0o640)
    shared = site.folder / "task_prolog.sh"
    site.setup("--apply", "--task-prolog", str(shared))

    undone = site.undo("--apply")
    assert undone.exit_code == 1, "the file of the TaskProlog is left for the nodes"
    assert f"to remove later: {shared}" in undone.output
    undone = site.undo("--apply")

    assert undone.exit_code == 0, undone.output
    assert without_copies(site) == {"slurm.conf": BARE}
    assert site.conf.stat().st_mode & 0o777 == 0o640
    assert not (site.folder / "headway").exists()
    copies = [path for path in site.folder.iterdir() if "-headway-" in path.name]
    assert len(copies) == 2
    for copy in copies:
        assert str(copy) in undone.output


def test_without_an_answer_of_slurmctld_the_scripts_stay(site: Site) -> None:
    site.setup("--apply")

    undone = site.setup("--undo", "--apply")  # slurm.conf names no machine, so scontrol has no answer

    assert undone.exit_code == 1, undone.output
    assert site.conf.read_text() == BARE
    for name in ("job_submit.lua", "headway/slurmctld_event.sh", "headway/setup.json"):
        assert (site.folder / name).is_file()
    assert "none answers (" in undone.output
    assert "--slurmctld-gone" in undone.output
    assert site.undo("--apply").exit_code == 0
    assert without_copies(site) == {"slurm.conf": BARE}


def test_the_statement_about_slurmctld_belongs_to_the_undo(site: Site) -> None:
    assert site.setup("--apply", "--slurmctld-gone").exit_code == 2


def test_undoing_twice_changes_nothing_more(site: Site) -> None:
    site.setup("--apply")
    site.undo("--apply")
    before = site.files()

    again = site.undo("--apply")

    assert (again.exit_code, "nothing of Headway is left in slurm.conf" in again.output) == (0, True)
    assert site.files() == before


def test_without_an_installation_there_is_nothing_to_undo(site: Site) -> None:
    result = site.undo("--apply")

    assert (result.exit_code, result.output.strip()) == (0, "nothing of Headway is left in slurm.conf")
    assert site.files() == {"slurm.conf": BARE}


@pytest.mark.parametrize("text", [BARE.replace("\n", "\r\n"), BARE + "# no newline", "", "\n\n"])
def test_line_ends_come_back_as_they_were(site: Site, text: str) -> None:
    site.conf.write_bytes(text.encode())
    site.setup("--apply")
    site.undo("--apply")

    assert site.conf.read_bytes() == text.encode()


def test_links_stay_links(site: Site) -> None:
    real = site.folder / "real"
    real.mkdir()
    site.conf.rename(real / "cluster.conf")
    site.conf.symlink_to(real / "cluster.conf")
    (site.folder / "job_submit.lua").symlink_to(real / "submit.lua")  # to a file that Headway then makes
    site.setup("--apply")
    assert (real / "submit.lua").exists()

    undone = site.undo("--apply")

    assert undone.exit_code == 0, undone.output
    assert site.conf.is_symlink()
    assert (real / "cluster.conf").read_text() == BARE
    assert not (real / "submit.lua").exists()
    assert (site.folder / "job_submit.lua").is_symlink()
    assert f"left behind: {site.folder / 'job_submit.lua'}, a link" in undone.output
    assert f"{real / 'cluster.conf'}.before-headway-" in undone.output


def test_an_undo_by_another_path_leaves_what_slurmctld_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld requeues every batch job whose PrologSlurmctld is missing."""
    real, link, programs = tmp_path / "opt", tmp_path / "slurm", tmp_path / "bin"
    for folder in (real, programs):
        folder.mkdir()
    link.symlink_to(real)
    Site(link).setup("--apply", "--task-prolog", str(link / "task_prolog.sh"))
    hook, settings = link / "headway" / "slurmctld_event.sh", tmp_path / "settings"
    settings.write_text(f"ClusterName = lab\nPrologSlurmctld[0] = {hook}\nTaskProlog = {link / 'task_prolog.sh'}\n")
    (programs / "scontrol").write_text(f"#!/bin/sh\nexec cat {settings}\n")
    (programs / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    undo = ("slurm", "--slurm-conf", str(real / "slurm.conf"), "--undo", "--apply")

    for _ in range(2):
        undone = CliRunner().invoke(app, undo)
        assert undone.exit_code == 1
        assert (real / "slurm.conf").read_text() == BARE
        assert hook.exists()
        assert (real / "task_prolog.sh").exists()

    settings.write_text("ClusterName = lab\nPrologSlurmctld = (null)\nTaskProlog = (null)\n")
    undone = CliRunner().invoke(app, undo)
    assert undone.exit_code == 0, undone.output
    assert [path.name for path in real.iterdir() if "-headway-" not in path.name] == ["slurm.conf"]


def test_a_changed_script_is_kept_as_a_copy(site: Site) -> None:
    site.setup("--apply")
    script = site.folder / "job_submit.lua"
    script.write_text(script.read_text() + "-- ours\n")

    answer = json.loads(site.undo("--apply", "--json").output)

    assert str(script) in answer["removed"]
    (copy,) = site.folder.glob("job_submit.lua.with-headway-*")
    assert copy.read_text().endswith("-- ours\n")
    assert not script.exists()
    assert any(str(copy) in note for note in json.loads(site.undo("--json").output)["notes"])


def test_the_plugin_of_sbatch_is_named(site: Site) -> None:
    (site.folder / "plugstack.conf").write_text("optional headway.so\n")

    result = site.undo()

    assert "left behind: the SPANK plugin" in result.output


def test_a_controller_that_runs_is_to_be_stopped_first(site: Site) -> None:
    run = site.folder / "run"
    run.mkdir()
    site.setup("--apply", "--runtime-dir", str(run))
    write_lease(run / "lease", Lease(int(time.time()), 30, ("gpu",), 0, 0))

    result = site.undo("--runtime-dir", str(run))

    assert "note: the controller runs. Stop it first" in result.output


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "edits": [{}]}'])
def test_a_damaged_record_is_an_error_with_the_mend(site: Site, text: str) -> None:
    site.setup("--apply")
    (site.folder / "headway" / "setup.json").write_text(text)
    before = site.files()

    result = site.undo("--apply")

    assert result.exit_code == 2
    assert "cannot be used" in result.output
    assert "move it away" in result.output
    assert site.files() == before
    (site.folder / "headway" / "setup.json").unlink()
    assert site.undo("--apply").exit_code == 0


def test_a_line_that_cannot_be_edited_is_named(site: Site) -> None:
    site.setup("--apply")
    changed = site.conf.read_text().replace(",batch_sched_delay=0", r",x=\#1,batch_sched_delay=0")
    site.conf.write_text(changed)

    result = site.undo("--apply")

    assert result.exit_code == 2
    assert f"{site.conf}: line 2: SchedulerParameters is written in a way that cannot be edited safely" in result.output
    assert site.conf.read_text() == changed
