"""Slurm's settings, and the rights of SlurmUser, when the first answers are bad."""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.base.clock import VirtualClock
from controller.base.errors import ConfigurationError, SlurmReplyError
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.daemon.slurm_settings import SlurmSettings
from controller.slurm.client import SlurmFacts
from controller.slurm.user_holds import HoldFolder

OTHER = pwd.struct_passwd(("slurm", "x", os.getuid() + 1, os.getgid(), "", "/", "/bin/false"))


def facts(user: str) -> SlurmFacts:
    return SlurmFacts((26, 5, 0), "c", "command-line", {"SlurmUser": user} if user else {})


@pytest.fixture
async def wake(tmp_path: Path) -> AsyncIterator[WakePipe]:
    with closing(WakePipe(tmp_path / "wake")) as pipe:
        yield pipe


def settings_of(answers: list[Any], accounts: list[Any], folder: Path) -> tuple[SlurmSettings, VirtualClock]:
    """Return settings whose Slurm and whose name service give these answers, the last one again and again."""

    async def next_of(those: list[Any]) -> Any:
        found = those.pop(0) if len(those) > 1 else those[0]
        if isinstance(found, Exception):
            raise found
        return found

    clock, holds = VirtualClock(), HoldFolder(folder / "holds")
    holds.make()
    client: Any = SimpleNamespace(facts=lambda: next_of(answers))
    return SlurmSettings(client, clock, holds, lambda _name: next_of(accounts)), clock


async def test_slurms_user_gets_its_rights_when_the_name_service_answers_later(tmp_path: Path, wake: WakePipe) -> None:
    # given a name service that does not answer at the start, and then does not know the user
    accounts = [TimeoutError("no answer"), TimeoutError("no answer"), KeyError("slurm"), OTHER]
    settings, clock = settings_of([facts("slurm(0)")], accounts, tmp_path)
    with capture_logs() as logs:
        for _ in range(40):  # cycles within two minutes
            await settings.read(wake)
            await clock.advance(3.0)
    # then its group may write in the end, without a restart, and each problem was logged once
    assert accounts == [OTHER]
    assert (tmp_path / "holds").stat().st_mode & 0o777 == 0o770
    assert (tmp_path / "wake").stat().st_mode & 0o777 == 0o660
    assert [log["event"] for log in logs] == ["wake_pipe_closed_to_slurm"] * 2


async def test_attempts_become_more_seldom(tmp_path: Path, wake: WakePipe) -> None:
    tried: list[float] = []
    settings, clock = settings_of([facts("slurm(0)")], [KeyError("slurm")], tmp_path)
    unknown = settings._account

    async def account(name: str) -> pwd.struct_passwd:
        tried.append(clock.monotonic())
        return await unknown(name)

    settings._account = account
    for _ in range(3600):
        await settings.read(wake)
        await clock.advance(1.0)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses[:4] == [5.0, 10.0, 20.0, 40.0]
    assert set(pauses[6:]) == {300.0}


async def test_rights_are_checked_against_the_first_answer_that_has_slurms_user(tmp_path: Path, wake: WakePipe) -> None:
    # given a first answer without SlurmUser
    stranger = f"slurm({os.getuid() + 1})" if os.getuid() else "slurm(0)"
    answers = [SlurmReplyError("a page of text"), facts(""), facts(stranger)]
    settings, clock = settings_of(answers, [OTHER], tmp_path)
    with pytest.raises(SlurmReplyError):
        await settings.read(wake)
    await settings.read(wake)
    assert settings.facts == facts("")
    # when a later one has it, then it counts as at the start
    await clock.advance(61.0)
    if os.getuid():
        with pytest.raises(ConfigurationError, match="whose changes Slurm refuses"):
            await settings.read(wake)
    else:
        await settings.read(wake)
        assert settings._has_rights
