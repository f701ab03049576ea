"""headway_job as a package that users install: in its own virtual environment, with and without the folder of a node."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from email import message_from_string
from pathlib import Path

import headway_job as package
import pytest

from tests.unit.headway_job.agent import JOBSIDE, PROJECT
from tests.unit.headway_job.small_torch import MODEL, make

ROOT = PROJECT.parent


class Environment:
    """A virtual environment with nothing in it but the wheel, and a small torch."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder / "venv", with_pip=False)
        self.python = folder / "venv" / "bin" / "python"
        self.site = next((folder / "venv" / "lib").glob("python*/site-packages"))
        argv = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(self.python),
            "install",
            "--no-index",
            "--no-deps",
            str(wheel),
        ]
        # pip takes a version in a folder of PYTHONPATH, such as that of the node, for an installed one, and installs nothing
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run(argv, check=True, capture_output=True, timeout=100, env=clean)
        shutil.copytree(make(folder) / "torch", self.site / "torch")

    def run(self, text: str, *flags: str, **environment: str) -> str:
        """Return what a program prints, and check that it succeeds and writes nothing to stderr."""
        done = subprocess.run(
            [str(self.python), *flags, "-c", text],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    shutil.copytree(PROJECT, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    argv = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "-w",
        str(folder),
        str(source),
    ]
    subprocess.run(argv, check=True, capture_output=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"headway_job-{package.__version__}-py3-none-any.whl"
    return Environment(folder, wheel)


def test_folder_and_package_are_the_same_distribution_in_the_same_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    (info,) = JOBSIDE.glob("*.dist-info")
    found = message_from_string((info / "METADATA").read_text())

    assert info.name == f"headway_job-{package.__version__}.dist-info"
    assert (
        (found["Name"], found["Version"])
        == (project["name"], project["version"])
        == ("headway-job", package.__version__)
    )
    assert found["Requires-Python"] == project["requires-python"]
    assert found["Summary"] == project["description"]
    assert project["dependencies"] == []
    source = PROJECT / "src"
    folders = {path.parent.relative_to(source) for path in (source / "headway_job").rglob("__init__.py")}
    packages = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(packages) == sorted(".".join(folder.parts) for folder in folders)
    assert project["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    group, line = (info / "entry_points.txt").read_text().splitlines()
    assert dict([re.split(r"\s*=\s*", line)]) == project["entry-points"][group.strip("[]")]


_LOOKS = (
    MODEL
    + """
import headway_job, os, sys
step()
from importlib import metadata
found = [entry for entry in metadata.entry_points(group="torch.backends")]
process = sys.modules.get("headway_job.hook.process")
began = process is not None and process._hook is not None
print(len(found), began, len(torch.optim.optimizer._hooks), os.path.dirname(os.path.dirname(headway_job.__file__)))
"""
)


def test_without_headway_it_is_installed_and_does_nothing(environment: Environment) -> None:
    assert environment.run(_LOOKS, "-I") == f"1 False 0 {environment.site}\n"
    assert "headway_job" in environment.run("import headway_job; print(headway_job)", "-I")


def test_in_a_job_it_begins(environment: Environment, tmp_path: Path) -> None:
    assert environment.run(_LOOKS, HEADWAY_JOB_SOCKET=str(tmp_path / "none")) == f"1 True 1 {environment.site}\n"


def test_the_nodes_version_has_precedence_and_begins_once(environment: Environment, tmp_path: Path) -> None:
    path = f"{JOBSIDE}:{JOBSIDE / 'before_2_5'}"

    seen = environment.run(_LOOKS, HEADWAY_JOB_SOCKET=str(tmp_path / "none"), PYTHONPATH=path)

    assert seen == f"1 True 1 {JOBSIDE}\n"
