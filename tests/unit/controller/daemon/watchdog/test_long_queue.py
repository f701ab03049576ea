"""The watchdog works with a queue whose text is longer than what the controller can read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from controller.base.config import ControllerSettings
from controller.base.errors import SlurmReplyError
from controller.daemon.watchdog.run import check_once
from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.select import command_line_client
from tests.unit.controller.slurm.scontrol.text import CLOCK, job_line, node_line

_SCONTROL = '''#!{python} -IS
"""A scontrol with one held job behind very many others."""
import os, pathlib, sys

state = pathlib.Path({state!r})
token = os.environ["SLURM_TIME_FORMAT"].removesuffix("%s")
out = sys.stdout.buffer


def shown(line):
    return line.replace({token!r}, token).encode() + b"\\n"


def held():
    priority, comment = state.read_text().split("|")
    return shown({held!r}.replace("=PRIORITY ", "=" + priority + " ").replace("COMMENT", comment))


for words in [line.split() for line in sys.stdin] or [sys.argv[1:]]:
    priority, comment = state.read_text().split("|")
    match words:
        case ["show", "hostnames", name]:
            out.write(name.encode() + b"\\n")
        case ["show", "job"]:
            others = shown({other!r}) * 1000
            for _ in range({mebibytes} * 1048576 // len(others)):
                out.write(others)
            out.write(held())
        case ["show", "job", "7"]:
            out.write(held())
        case ["show", "node"]:
            out.write(shown({node!r}))
        case ["release", "7"]:
            state.write_text("4294901000|" + comment)
        case ["update", "JobId=7", change]:
            state.write_text(priority + "|" + change.removeprefix("AdminComment="))
        case ["show", "partition" | "reservation"]:
            pass
        case _:
            sys.exit("unknown: " + " ".join(words))
'''


@pytest.fixture
def settings(tmp_path: Path) -> ControllerSettings:
    (tmp_path / "state").write_text(f"0|{HOLD_MARK}")
    program = tmp_path / "scontrol"
    text = _SCONTROL.format(
        python=sys.executable,
        state=str(tmp_path / "state"),
        token=CLOCK.token,
        held=job_line(raw="7", priority="PRIORITY", admin_comment="COMMENT"),
        other=job_line(raw="8", priority="5"),
        node=node_line("n1"),
        mebibytes=300,
    )
    program.write_text(text)
    program.chmod(0o755)
    return ControllerSettings(
        partitions=("dl",), runtime_dir=tmp_path, state_dir=tmp_path, slurm_bin=tmp_path, slurm_timeout_s=60.0
    )


async def test_a_held_job_behind_300_mib_of_others_is_released(
    settings: ControllerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a queue that is too long for the controller, and no lease
    with pytest.raises(SlurmReplyError, match="more than 256 MiB"):
        await command_line_client(settings).snapshot()
    monkeypatch.setattr("controller.daemon.watchdog.run.confirm_s", lambda _beat_s: 0.01)

    # when the watchdog checks
    status = await check_once(lambda: (settings, ""))

    # then the job is released, and has no mark any more
    assert (status, (settings.state_dir / "state").read_text()) == (0, "4294901000|")
