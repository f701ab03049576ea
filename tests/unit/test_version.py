"""--version of every program: quick, without heavy imports, and the version of pyproject.toml."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from policies.serving.runtime.version import VERSION

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
HEAVY = ("google.protobuf", "grpc", "matplotlib", "numpy", "pydantic", "rich.table", "structlog", "torch")
PROGRAM = """
import importlib, json, sys
sys.argv = [{name!r}, "--version"]
try:
    importlib.import_module({module!r}).main()
finally:
    heavy = [name for name in {heavy!r} if name in sys.modules]
    sys.stderr.write(json.dumps(heavy))
"""


def test_the_version_is_that_of_the_package() -> None:
    assert PROJECT["version"] == VERSION


@pytest.mark.parametrize("name", sorted(PROJECT["scripts"]))
def test_every_program_prints_its_version(name: str) -> None:
    module, _, function = PROJECT["scripts"][name].partition(":")
    assert function == "main"
    program = PROGRAM.format(name=name, module=module, heavy=HEAVY)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (0, f"{name} {VERSION}\n"), done.stderr
    assert json.loads(done.stderr) == []
