"""Programs that end by an error end with a status that makes systemd start them again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

CONTROLLER = """
import asyncio
from unittest.mock import patch
from controller.daemon.cli import main

async def broken(*_arguments):
    raise {error}

with patch("{broken}", broken):
    main()
"""
AGENT = CONTROLLER.replace("controller.daemon.cli", "nodeagent.cli")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


def status(script: str, config: Path) -> tuple[int, str]:
    found = subprocess.run(
        [sys.executable, "-c", script, "run", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return found.returncode, found.stderr


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ("controller.daemon.heartbeat.Heartbeat.run", "ZeroDivisionError('oh')"),
        ("controller.daemon.pacing.pause.Pause.wait", "asyncio.CancelledError"),
    ],
)
def test_a_controller_without_heartbeat_or_cycles_ends_with_status_1(folder: Path, broken: str, error: str) -> None:
    config = folder / "controller.toml"
    config.write_text(
        f'partitions = ["dl"]\nslurm_client = "embedded"\nruntime_dir = "{folder}"\nstate_dir = "{folder}/state"\n'
        f'policy_address = "unix://{folder}/policy.sock"\nmetrics_address = ""\n'
    )
    code, said = status(CONTROLLER.format(error=error, broken=broken), config)
    assert code == 1, said


def test_an_agent_whose_cycles_end_ends_with_status_1(folder: Path) -> None:
    config = folder / "agent.toml"
    config.write_text(
        f'controller_address = "unix://{folder}/agents.sock"\nmunge = "off"\njob_socket = "{folder}/job.sock"\ngpus = "off"\n'
    )
    code, said = status(
        AGENT.format(error="asyncio.CancelledError", broken="nodeagent.daemon.NodeAgent._pause"), config
    )
    assert code == 1, said
    assert not (folder / "job.sock").exists()
