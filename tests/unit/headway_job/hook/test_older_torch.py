"""Versions of torch without entry points (before 2.5), and without hooks for all optimizers (before 2.1)."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.wire.frames import Bye
from tests.unit.headway_job.agent import JOBSIDE, SOCKETS, Agent, Program
from tests.unit.headway_job.small_torch import MODEL, make

_BEFORE_2_5 = JOBSIDE / "before_2_5"
_LOOP = (
    SOCKETS
    + MODEL
    + "import time\ntime.sleep(0.5)\nstep()\nconnected()\nfor _ in range(19): step(); time.sleep(0.01)\nprint(torch.MONKEYTYPE)\n"
)


def test_the_oldest_python_of_torch_1_10_can_read_it() -> None:
    # torch continues without MonkeyType only after an ImportError, so a SyntaxError would break its import.
    tree = ast.parse((_BEFORE_2_5 / "monkeytype.py").read_text(), feature_version=(3, 6))
    assert not [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]


@pytest.mark.parametrize("post_hooks", [True, False], ids=["2.4", "1.13"])
def test_older_torch_starts_the_hook(tmp_path: Path, agent: Agent, post_hooks: bool) -> None:
    torch = make(tmp_path, "2.4.1+cu121", entry_points=False, post_hooks=post_hooks)
    done = Program(tmp_path, agent, JOBSIDE, _BEFORE_2_5, torch).run(_LOOP)
    agent.close()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "No module named 'monkeytype'\n"
    (connection,) = agent.connections
    assert connection.hello.torch == "2.4.1+cu121"
    assert connection.steps.steps == 20
    assert isinstance(connection.frames[-1], Bye)


def test_nothing_starts_if_no_agent_is_configured(tmp_path: Path) -> None:
    program = Program(tmp_path, None, JOBSIDE, _BEFORE_2_5, make(tmp_path, "2.4.1", entry_points=False))
    del program.environment["HEADWAY_JOB_SOCKET"]

    done = program.run(
        SOCKETS
        + "before = threads()\n"
        + MODEL
        + "step()\nprint(before, threads(), len(torch.optim.optimizer._hooks))\n"
    )

    assert (done.stdout, done.stderr) == ("1 1 0\n", "")


def test_monkeytype_itself_is_not_hidden(tmp_path: Path, agent: Agent) -> None:
    real = tmp_path / "site" / "monkeytype"
    real.mkdir(parents=True)
    (real / "__init__.py").write_text("")
    (real / "trace.py").write_text("")
    torch = make(tmp_path, "1.13.1", entry_points=False)
    done = Program(tmp_path, agent, JOBSIDE, _BEFORE_2_5, torch, real.parent).run(_LOOP)
    agent.close()
    assert (done.stdout, done.stderr) == (f"{real / '__init__.py'}\n", "")
    assert agent.connections[0].steps.steps == 20


def test_it_begins_once_with_both_mechanisms(tmp_path: Path, agent: Agent) -> None:
    done = Program(tmp_path, agent, JOBSIDE, _BEFORE_2_5, make(tmp_path, "2.5.0")).run(_LOOP)
    agent.close()
    assert done.stderr == ""
    (connection,) = agent.connections
    assert connection.steps.steps == 20


def test_nothing_starts_if_torchs_own_switch_is_off(tmp_path: Path, agent: Agent) -> None:
    Program(tmp_path, agent, JOBSIDE, _BEFORE_2_5, make(tmp_path, "2.13.0", entry_points=False)).run(
        _LOOP.replace("connected()", "time.sleep(1.0)")
    )
    assert agent.connections == []


def test_without_torch_the_import_fails_as_usual(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import monkeytype"],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": f"{JOBSIDE}{os.pathsep}{_BEFORE_2_5}"},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'monkeytype'\n")


def test_python_3_8_can_read_it() -> None:
    """The syntax only: what 3.8 lacks at run time was tried with torch 1.13 and 2.4 on Python 3.8."""
    import ast

    for path in JOBSIDE.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
