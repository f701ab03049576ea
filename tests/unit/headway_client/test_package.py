"""The package by itself: Python 3.9 and gRPC are enough, and pip installs all of it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grpc
import headway_client
import pytest

PROJECT = Path(__file__).resolve().parents[3] / "headway_client"
SOURCE = PROJECT / "src" / "headway_client"
SINCE_3_10 = re.compile(
    r"\b(?:slots=True|kw_only|StrEnum|tomllib|asyncio\.timeout|TaskGroup|zip\([^)]*strict=|except\*|anext\()"
)


def test_python_3_9_can_read_it() -> None:
    """Syntax, and the names that would be missed most easily."""
    for path in SOURCE.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))
        assert SINCE_3_10.findall(path.read_text()) == [], path


def test_grpc_is_all_that_it_needs() -> None:
    imported = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])

    assert imported - {"headway_client", "grpc"} <= sys.stdlib_module_names


def test_all_of_it_is_in_the_package() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    folders = {path.parent.relative_to(SOURCE.parent).as_posix().replace("/", ".") for path in SOURCE.rglob("*.py")}

    assert set(settings["tool"]["setuptools"]["packages"]) == folders
    assert settings["project"]["version"] == headway_client.__version__
    assert settings["project"]["dependencies"] == ["grpcio>=1.49"]
    assert (SOURCE / "py.typed").exists()


@pytest.mark.slow
def test_pip_installs_it_into_an_empty_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # pip would find the package there, and install nothing
    # given its wheel, built with what these tests run with, and an environment that has gRPC
    shutil.copytree(PROJECT, tmp_path / "headway_client", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheel = [
        *pip,
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(tmp_path),
        str(tmp_path / "headway_client"),
    ]
    subprocess.run([sys.executable, *wheel], check=True, timeout=120)
    subprocess.run(
        [sys.executable, "-m", "venv", "--system-site-packages", str(tmp_path / "venv")], check=True, timeout=120
    )
    python = str(tmp_path / "venv" / "bin" / "python")
    # grpcio, which pip would install from an index, is the one of this interpreter
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "grpcio.pth").write_text(f"{Path(grpc.__file__).parents[1]}\n")
    # when it is installed
    (built,) = tmp_path.glob("*.whl")
    subprocess.run([python, *pip, "install", "--no-index", "--no-deps", str(built)], check=True, timeout=120)
    # then it is whole, typed, and asks
    program = (
        "import headway_client, pathlib\n"
        "folder = pathlib.Path(headway_client.__file__).parent\n"
        "print(sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.suffix in ('.py', '.typed')))\n"
        "try:\n    headway_client.Client('/nowhere').status()\n"
        "except headway_client.UnavailableError: print('asked')\n"
    )
    done = subprocess.run(
        [python, "-I", "-c", program], check=False, timeout=60, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    there, asked = done.stdout.splitlines()
    assert ast.literal_eval(there) == sorted(
        str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*") if path.suffix in (".py", ".typed")
    )
    assert asked == "asked"
