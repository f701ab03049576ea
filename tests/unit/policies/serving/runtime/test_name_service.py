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


async def test_users_and_groups_of_this_machine() -> None:
    root = pwd.getpwuid(0)
    assert await user_name(0) == root.pw_name
    assert await user_names([0, NO_USER, 2**40]) == {0: root.pw_name, NO_USER: "", 2**40: ""}
    assert await user_names([]) == {}
    assert await user_account(root.pw_name) == root
    with pytest.raises(KeyError):
        await user_account("no-such-user")
    assert await is_member(root.pw_name, root.pw_gid)
    assert not await is_member(root.pw_name, 54_321)
    assert not await is_member("no-such-user", root.pw_gid)


async def test_without_an_answer_users_have_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a directory that answers for one user only
    service, threads = HangingService(tmp_path / "pipe"), FewThreads("names", 2, 2.0)
    real = pwd.getpwuid(0)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: real if uid == 0 else service(uid))
    monkeypatch.setattr(pwd, "getpwnam", service)
    with capture_logs() as logs:
        assert await user_names([0, 1001, 1002], threads=threads) == {0: real.pw_name, 1001: "", 1002: ""}
        with pytest.raises(TimeoutError, match="user ann: the name service does not answer: no answer within 2 s"):
            await user_account("ann", threads)
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
