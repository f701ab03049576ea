"""Notifications to a real program: its input, its environment, its time limit, and the required rights."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from controller.base.errors import ConfigurationError
from controller.notify.command import Command, require_command
from controller.notify.outbox import DeliveryError
from tests.unit.controller.notify.jobs import notification
from tests.unit.controller.notify.receiver import until


def script(folder: Path, text: str) -> Path:
    path = folder / "notify"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_program_gets_the_json_and_nothing_else_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CONTROLLER", "s3cret")
    name = "$(touch harm); `touch harm`; ';touch harm' \"\n&& touch harm"
    program = script(tmp_path, f'cd {tmp_path}; cat >body; echo "$# $*" >arguments; env >environment')

    Command(program, 60.0)(notification(name=name))

    assert json.loads((tmp_path / "body").read_text())["user"] == "alice"
    assert (tmp_path / "arguments").read_text() == "0 \n"
    environment = (tmp_path / "environment").read_text()
    assert "touch" not in environment
    assert "s3cret" not in environment
    assert "PATH=/usr/local/sbin:" in environment
    assert not (tmp_path / "harm").exists()


def test_a_program_that_takes_too_long_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    program = script(tmp_path, f"sleep 600 & echo $! >{tmp_path}/child; wait")
    limit_s, child_file = 1, tmp_path / "child"
    while not (child_file.exists() and child_file.read_text()):  # it must have begun by then
        begun = time.monotonic()
        with pytest.raises(DeliveryError, match=rf"notify: took longer than {limit_s} s, and was killed"):
            Command(program, limit_s)(notification())
        assert time.monotonic() - begun < limit_s + 60
        limit_s *= 2
    child = int(child_file.read_text())
    until(lambda: not _runs(child), "the child ends")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_program_need_not_read_its_input(tmp_path: Path) -> None:
    Command(script(tmp_path, "exec <&-; exit 0"), 60.0)(notification())


@pytest.mark.parametrize(
    ("text", "message"), [("exit 7", "ended with status 7"), ("kill -9 $$", "ended with status -9")]
)
def test_a_program_that_fails_is_reported(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DeliveryError, match=message):
        Command(script(tmp_path, text), 60.0)(notification())


def test_a_program_that_is_gone_or_no_program_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with pytest.raises(DeliveryError, match=r"cannot be run: .*No such file"):
        Command(path, 60.0)(notification())
    path.write_bytes(b"\0\0\0")
    path.chmod(0o755)
    with pytest.raises(DeliveryError, match=r"cannot be run: .*Exec format error"):
        Command(path, 60.0)(notification())


def test_only_its_owner_may_be_able_to_change_the_program(tmp_path: Path) -> None:
    path = script(tmp_path, "exit 0")
    require_command(path)
    path.chmod(0o775)
    with pytest.raises(ConfigurationError, match=rf"notify_command: {path}: .*chmod go-w {path}"):
        require_command(path)
    path.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        with pytest.raises(ConfigurationError, match=f"chown root {path}"):
            require_command(path)
    path.unlink()
    with pytest.raises(ConfigurationError, match="No such file or directory; name an existing program"):
        require_command(path)
    with pytest.raises(ConfigurationError, match="absolute path of a program"):
        require_command(tmp_path)
