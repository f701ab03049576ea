"""Two clusters whose slurm.conf are in one folder: job_submit.lua and the hooks belong to both."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.slurm.configuration import installed_files
from tests.unit.slurm.setup.site import BARE, Site

OTHER = BARE.replace("lab", "other")


@pytest.fixture
def clusters(tmp_path: Path) -> tuple[Site, Site]:
    """Headway is installed for both clusters."""
    both = Site(tmp_path, "slurm.conf", BARE), Site(tmp_path, "other.conf", OTHER)
    for site in both:
        applied = site.setup("--apply")
        assert applied.exit_code == 0, applied.output
    return both


def scripts(folder: Path) -> set[str]:
    """Names of Headway's scripts that are there."""
    return {
        path.name
        for path in folder.rglob("*")
        if path.is_file() and installed_files.script_version(path.read_text()) is not None
    }


@pytest.mark.parametrize("first", [0, 1])
def test_an_undo_leaves_the_scripts_that_the_other_cluster_runs(clusters: tuple[Site, Site], first: int) -> None:
    one, other = clusters[first], clusters[1 - first]
    before = other.conf.read_text()
    # when Headway is taken out of one cluster, then the other keeps everything
    undone = one.undo("--apply")
    assert undone.exit_code == 0, undone.output
    assert one.conf.read_text() in {BARE, OTHER}
    assert other.conf.read_text() == before
    assert scripts(one.folder) == {"job_submit.lua", "slurmctld_event.sh"}
    for name in ("job_submit.lua", "headway/slurmctld_event.sh"):
        assert f"left behind: {one.folder / name}, which {other.conf} (ClusterName=" in undone.output
    assert other.setup("--check").exit_code == 0
    # when it is taken out of the other one, then nothing is left
    last = other.undo("--apply")
    assert last.exit_code == 0, last.output
    assert {one.conf.read_text(), other.conf.read_text()} == {BARE, OTHER}
    assert scripts(one.folder) == set()
    assert not (one.folder / "headway").exists()


def test_each_cluster_has_a_record_of_its_own(tmp_path: Path) -> None:
    one = Site(tmp_path, "slurm.conf", BARE.replace("bf_interval=30", "defer"))
    other = Site(tmp_path, "other.conf", OTHER + "JobSubmitPlugins=partition\n")
    texts = one.conf.read_text(), other.conf.read_text()
    for site in (one, other):
        site.setup("--apply")

    for site in (one, other):
        assert site.undo("--apply").exit_code == 0

    assert (one.conf.read_text(), other.conf.read_text()) == texts


def test_a_record_of_an_earlier_version_counts_for_a_slurm_conf_of_another_name(tmp_path: Path) -> None:
    site = Site(tmp_path, "lab.conf", BARE + "JobSubmitPlugins=partition\n")
    before = site.conf.read_text()
    site.setup("--apply")
    (tmp_path / "headway" / "setup-lab.conf.json").rename(tmp_path / "headway" / "setup.json")

    assert site.undo("--apply").exit_code == 0
    assert site.conf.read_text() == before
    assert not (tmp_path / "headway").exists()


def test_a_hook_of_the_other_cluster_that_calls_headways_counts(tmp_path: Path) -> None:
    hook = tmp_path / "headway" / "slurmctld_event.sh"
    prolog = tmp_path / "prolog.sh"
    prolog.write_text(f"#!/bin/sh\n{hook}\n")
    one, other = Site(tmp_path), Site(tmp_path, "other.conf", f"{OTHER}PrologSlurmctld={prolog}\n")
    one.setup("--apply")

    undone = one.undo("--apply")

    assert f"left behind: {hook}, which {other.conf} (ClusterName=other) uses too" in undone.output
    assert scripts(tmp_path) == {"slurmctld_event.sh"}  # the other cluster has no lua in JobSubmitPlugins


def test_copies_of_the_clusters_own_slurm_conf_are_no_other_cluster(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.setup("--apply")
    (site.folder / "slurm.conf.bak").write_bytes(site.conf.read_bytes())

    assert site.undo("--apply").exit_code == 0
    assert scripts(site.folder) == set()


def test_a_runtime_dir_that_the_other_cluster_does_not_have_is_refused(clusters: tuple[Site, Site]) -> None:
    one, other = clusters
    before = one.files()

    result = other.setup("--apply", "--runtime-dir", "/run/headway-other")

    assert (result.exit_code, one.files()) == (2, before)
    assert f"{one.folder}/job_submit.lua: this script has the runtime_dir /run/headway, and {one.conf}" in result.output
