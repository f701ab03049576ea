"""headway-policy as a program, with packages installed beside it."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples/learned-order"
START = [sys.executable, "-c", "from policies.serving.cli.app import main; main()"]
LIMIT_S = 100.0


def install(folder: Path, groups: Mapping[str, Mapping[str, str]], *beside: Path) -> dict[str, str]:
    """The environment in which a package with these entry points is installed; its modules are in `beside`."""
    info = folder / "other-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    lines = [
        line for group, names in groups.items() for line in (f"[{group}]", *(f"{a} = {b}" for a, b in names.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    path = [str(folder), *map(str, beside), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "COLUMNS": "200"}


def install_example(folder: Path) -> dict[str, str]:
    """The example as pip would install it."""
    project: dict[str, Any] = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    return install(folder, project["entry-points"], EXAMPLE)


class CommandServer:
    """Runs commands one after the other, in processes forked from one that has imported torch: a second instead of four."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.unit.policies.learned.command_server import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
        )
        atexit.register(self._process.communicate)

    def run(self, argv: list[str], env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with NamedTemporaryFile("r") as out, NamedTemporaryFile("r") as err:
            order = {"argv": argv, "env": dict(env), "cwd": str(cwd), "stdout": out.name, "stderr": err.name}
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            code = json.loads(self._process.stdout.readline())
            return subprocess.CompletedProcess([*START, *argv], code, out.read(), err.read())


command_server = cache(CommandServer)
"""The server of this process, from the first command to the end."""


def headway_policy(
    *arguments: object, env: Mapping[str, str], cwd: Path, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    done = command_server().run(list(map(str, arguments)), env, cwd)
    assert done.returncode == code, done.stderr
    return done


def in_a_new_interpreter(*arguments: object, env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end where Python itself has to start with that environment."""
    argv = [*START, *map(str, arguments)]
    return subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def started(*arguments: object, env: Mapping[str, str], cwd: Path) -> subprocess.Popen[str]:
    """Run it beside the test."""
    return subprocess.Popen(
        [*START, *map(str, arguments)],
        env=env,
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
