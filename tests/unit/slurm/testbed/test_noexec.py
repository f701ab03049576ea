"""Slurm executes nothing below /run, which many machines mount with noexec: its scripts are in the folder of the cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurm.minicluster import boot
from slurm.setup.spank_build import Toolchain, find_toolchain
from slurm.testbed.installation import Installation
from tests.unit.slurm.trial_cluster import as_root, mode, trial


def test_nothing_in_the_folder_of_an_installation_is_executed(tmp_path: Path) -> None:
    with Installation.prepare("trial", tmp_path, with_agents=True) as headway:
        spec = headway.cluster_spec(name="trial", nodes=1)

        hooks = {spec.job_submit_lua, spec.prolog_slurmctld, spec.epilog_slurmctld, spec.task_prolog}
        assert None not in hooks
        assert hooks == {spec.home / name for name in spec.added_files}
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and mode(path) & 0o111]
        assert f'"{headway.runtime_dir}"' in str(spec.added_files["hooks/job_submit.lua"])


@as_root
@pytest.mark.skipif(not isinstance(find_toolchain(), Toolchain), reason="the SPANK plugin cannot be built here")
def test_the_spank_plugin_is_a_file_of_the_cluster(tmp_path: Path) -> None:
    with Installation.prepare("trial", tmp_path, with_spank=True) as headway:
        spec = headway.cluster_spec(name="trial", nodes=1, gpus=0, directory=tmp_path / "cluster")
        spec = replace(spec, slurm_user="root")
        boot.write_files(spec, trial(spec))

        _, plugin = headway.plugstack.read_text().split()
        assert Path(plugin).is_relative_to(spec.home)
        assert Path(plugin).read_bytes() == headway.spank_plugin.read_bytes()
        assert f"PlugStackConfig={headway.plugstack}" in (spec.home / "etc" / "slurm.conf").read_text()
