"""Turns that processes of the tests share."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.turns import Turns

WAITS = """
import sys
from tests.turns import Turns

with Turns(sys.argv[1], 1).turn():
    print("its turn", flush=True)
    sys.stdin.read()
"""


def test_a_turn_is_another_process_s_once_its_holder_has_ended_or_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    path.touch()
    root = Path(__file__).parents[2]

    def begun() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WAITS, str(path)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)

    turns = Turns(str(path), 1)
    first = begun()
    assert first.stdout is not None
    assert first.stdout.readline() == "its turn\n"
    assert turns._taken() is None
    assert Turns(str(path), 2)._taken() == 1
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with turns.turn():
        pass
    assert begun().communicate("", timeout=60)[0] == "its turn\n"
