"""The installed package: it has the whole folder that jobs load, and a program that answers --help at once."""

import subprocess
import sys
import tomllib
from pathlib import Path

import headway_job

ROOT = Path(__file__).resolve().parents[3]


def test_all_that_jobs_load_is_installed() -> None:
    # A wheel has the modules of the packages that are found, and of other files those that the patterns name.
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = [
        name.replace(".", "/") for name in settings["packages"]["find"]["include"] if name.startswith("headway_job")
    ]
    patterns = settings["package-data"]

    built = {"__pycache__", "build", "headway_job.egg-info"}  # by pip, in the folder that it installs
    there = {path for path in (ROOT / "headway_job").rglob("*") if path.is_file() and not built & set(path.parts)}
    modules = {path for path in there if path.suffix == ".py" and path.parent.name.isidentifier()}
    data = {
        path
        for name in ("headway_job", "headway_job.src")
        for pattern in patterns[name]
        for path in (ROOT / name.replace(".", "/")).glob(pattern)
    }
    assert folders == ["headway_job", "headway_job/src*"]
    assert there == modules | data


def test_nothing_but_what_jobs_load_is_on_their_python_path() -> None:
    built = {"__pycache__"}
    found = {path.name for path in (ROOT / "headway_job" / "src").iterdir()} - built

    assert found == {"headway_job", f"headway_job-{headway_job.__version__}.dist-info", "before_2_5"}


def test_help_waits_for_nothing_heavy() -> None:
    program = (
        "import sys, nodeagent.cli\n"
        "heavy = {'grpc', 'google.protobuf', 'pydantic', 'structlog', 'asyncio', 'msgpack'} & set(sys.modules)\n"
        "sys.exit(str(sorted(heavy)) if heavy else 0)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
