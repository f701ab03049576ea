"""Users and groups of this machine. Where they come from a directory (SSSD, LDAP), a look-up hangs while that does not answer.

Every look-up of a process that serves others is made here: in a few threads of its own, and within a time limit. One that is not
answered in time counts as unknown, so that users appear by their numbers.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Iterable, Mapping
from functools import partial

import structlog

from policies.serving.runtime.tasks.few_threads import FewThreads

log = structlog.get_logger(__name__)

WITHIN_S = 2.0
"""Time for an answer."""
_LOOK_UPS = FewThreads("name-service", most=4, within_s=WITHIN_S)


async def user_name(uid: int, threads: FewThreads = _LOOK_UPS) -> str:
    """Return the user's name; empty when this machine does not know the uid, or does not say so in time."""
    return (await user_names([uid], threads=threads))[uid]


async def user_names(
    uids: Iterable[int], within_s: float = WITHIN_S, threads: FewThreads = _LOOK_UPS
) -> Mapping[int, str]:
    """Return the names of these users; empty names for those that are not known, or not in time. All share one time limit."""
    wanted = frozenset(uids)
    found: dict[int, str] = {}
    if not wanted:
        return found
    given_up = False

    def look_up() -> None:
        for uid in sorted(wanted):
            if given_up:
                return
            found[uid] = _name_of(uid)

    try:
        async with asyncio.timeout(within_s):
            await threads.run(look_up)
    except TimeoutError as error:
        log.warning("users_not_looked_up", users=len(wanted) - len(found), problem=str(error) or "no answer in time")
    finally:
        given_up = True
    return dict.fromkeys(wanted, "") | found.copy()


async def user_account(name: str, threads: FewThreads = _LOOK_UPS) -> pwd.struct_passwd:
    """Return a user's account. Raises KeyError for a user that this machine does not know, TimeoutError without an answer."""
    try:
        return await threads.run(partial(pwd.getpwnam, name))
    except TimeoutError as error:
        raise TimeoutError(f"user {name}: the name service does not answer: {error}") from error


async def is_member(name: str, group: int, threads: FewThreads = _LOOK_UPS) -> bool:
    """Return whether that user is in the group, or it is the user's own; False when that is not known in time."""
    try:
        return await threads.run(partial(_is_member, name, group))
    except TimeoutError as error:
        log.warning("group_not_looked_up", user=name, group=group, problem=str(error))
        return False


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError, OSError):
        return ""


def _is_member(name: str, group: int) -> bool:
    try:
        return group in os.getgrouplist(name, pwd.getpwnam(name).pw_gid)
    except (KeyError, OSError):
        return False
