"""The installed package: it has the whole folder that jobs load, and a program that answers --help at once."""

import subprocess
import sys
import tomllib
from pathlib import Path

import nodeagent

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(nodeagent.__file__).parent


def test_all_that_jobs_load_is_installed() -> None:
    # A wheel has what these patterns name: no package, so nothing else brings it along.
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["nodeagent"]

    built = {"__pycache__", "build", "headway_job.egg-info"}  # by pip, in the folder that it installs
    there = {path for path in (PACKAGE / "jobside").rglob("*") if path.is_file() and not built & set(path.parts)}
    assert there == {path for pattern in patterns for path in PACKAGE.glob(pattern) if "__pycache__" not in path.parts}


def test_help_waits_for_nothing_heavy() -> None:
    program = (
        "import sys, nodeagent.cli\n"
        "heavy = {'grpc', 'google.protobuf', 'pydantic', 'structlog', 'asyncio', 'msgpack'} & set(sys.modules)\n"
        "sys.exit(str(sorted(heavy)) if heavy else 0)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
