"""Users and groups, also while a directory does not answer."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from policies.errors import PeerError
from policies.serving.peers import TrustedUsers
from policies.serving.runtime.name_service import is_member, user_account, user_name, user_names
from policies.serving.runtime.tasks.few_threads import FewThreads
from tests.unit.policies.hanging import HangingService

NO_USER = 54_321


async def test_users_and_groups_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    root, threads = pwd.getpwuid(0), FewThreads("users", 2, 60.0)
    named = await user_names([0, NO_USER, 2**40], within_s=60.0, threads=threads)
    assert named == {0: root.pw_name, NO_USER: "", 2**40: ""}
    assert await user_names([], threads=threads) == {}
    monkeypatch.setattr(user_names, "__defaults__", (60.0, threads))
    assert await user_name(0, threads) == root.pw_name
    assert await user_account(root.pw_name, threads) == root
    with pytest.raises(KeyError):
        await user_account("no-such-user", threads)
    assert await is_member(root.pw_name, root.pw_gid, threads)
    assert not await is_member(root.pw_name, 54_321, threads)
    assert not await is_member("no-such-user", root.pw_gid, threads)


async def test_without_an_answer_users_have_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a directory that answers for one user only
    service = HangingService(tmp_path / "pipe")
    real = pwd.getpwuid(0)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: real if uid == 0 else service(uid))
    monkeypatch.setattr(pwd, "getpwnam", service)
    with capture_logs() as logs:
        for within_s in (2.0, 8.0, 30.0):  # on a busy machine the one answer may come late
            logs.clear()
            threads = FewThreads("names", 2, within_s)
            found = await user_names([0, 1001, 1002], within_s, threads)
            if found[0]:
                break
        assert found == {0: real.pw_name, 1001: "", 1002: ""}
        while True:  # a look-up may also be given up before its thread begins
            with pytest.raises(TimeoutError, match="user ann: the name service does not answer"):
                await user_account("ann", threads)
            if service.inside == 2:
                break
        assert not await is_member("ann", real.pw_gid, threads), "two look-ups hang, and no other begins"
        assert await user_name(1003, threads) == ""
    events = [log["event"] for log in logs]
    assert events == ["users_not_looked_up", "group_not_looked_up", "users_not_looked_up"]
    with service.answering():
        pass


async def test_a_user_without_a_name_is_not_trusted_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = HangingService(tmp_path / "pipe")
    monkeypatch.setattr(pwd, "getpwuid", service)
    with pytest.raises(PeerError, match=r"belongs to uid 54321, and only servers of uid \d+ are trusted; ask"):
        await TrustedUsers(frozenset({os.getuid()}), "ask").check(NO_USER)
    with service.answering():
        pass
