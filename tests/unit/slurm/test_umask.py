"""Slurm's user and ordinary users reach what they need, whatever the umask of the shell is in which a cluster was booted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.demo.run.workdir import DemoFolder
from slurm.minicluster import boot
from slurm.minicluster.host import namespaces
from slurm.minicluster.record import RecordStore
from slurm.minicluster.spec import ClusterSpec
from slurm.testbed.installation import Installation
from slurm.testbed.programs import write_toml
from tests.unit.slurm.trial_cluster import as_root, mode, trial


@pytest.fixture(autouse=True, params=[0o027, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@as_root
def test_the_files_of_a_cluster(tmp_path: Path) -> None:
    home = tmp_path / "clusters" / "trial"
    spec = ClusterSpec(
        name="trial", nodes=1, gpus=0, directory=home, slurm_user="root", added_files={"headway/deep/event.sh": "#!/bin/sh\n"}
    )  # fmt: skip
    boot.write_files(spec, trial(spec))
    for folder in (home.parent, home, home / "etc", home / "headway", home / "headway" / "deep"):
        assert mode(folder) == 0o755, folder
    assert mode(home / "headway" / "deep" / "event.sh") == 0o755
    assert mode(home / "etc" / "slurm.conf") == 0o644
    assert mode(home / "work") == 0o1777
    assert mode(home / "munge" / "munge.key") == 0o400


def test_a_record_and_its_lock(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "run")
    lock = store.lock("trial")
    try:
        store.write(trial(ClusterSpec(name="trial")))
        assert mode(tmp_path / "run") == 0o755
        assert {mode(path) for path in (tmp_path / "run").iterdir()} == {0o644}
    finally:
        lock.release(remove=True)


def test_an_installation_beside_a_cluster(tmp_path: Path) -> None:
    with Installation.prepare("trial", tmp_path, with_agents=True) as headway:
        headway.configure(None)
        for path in (headway.folder, headway.runtime_dir, headway.job_socket.parent, headway.job_side):
            assert mode(path) == 0o755, path
        assert mode(headway.job_side / "headway_job" / "__init__.py") == 0o644
        assert mode(headway.config) == 0o644


def test_programs_of_an_installation_have_the_usual_umask(tmp_path: Path) -> None:
    with Installation.prepare("trial", tmp_path) as headway:
        headway.start("umask", ["sh", "-c", "umask"])
        headway.processes["umask"].wait()
        assert headway.log("umask") == "0022\n"


def test_programs_on_a_host_have_the_usual_umask() -> None:
    script = Path(namespaces.__file__).with_name("enter.sh")
    done = subprocess.run(["sh", str(script), "none", "sh", "-c", "umask"], capture_output=True, text=True, check=True)
    assert done.stdout == "0022\n"


def test_a_settings_file(tmp_path: Path) -> None:
    write_toml(tmp_path / "controller.toml", {"partitions": ["dl"]})
    assert mode(tmp_path / "controller.toml") == 0o644


def test_the_folder_of_the_demonstration(tmp_path: Path) -> None:
    with DemoFolder(tmp_path / "demo", cluster=""):
        assert mode(tmp_path / "demo") == 0o755
