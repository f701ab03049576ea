"""Jobs that a caller of the Admin service may see: all, or those of one user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.admin.front import caller_of, uid_of
from controller.admin.protocol import USER, Reason
from controller.admin.refusal import CallRefused
from controller.admin.viewer import Viewer
from controller.base.private_data import JOBS, is_private
from controller.base.text import USER_NAME
from policies.serving.runtime.name_service import is_member

if TYPE_CHECKING:  # a class of the type stubs only
    from protos.headway.v1 import admin_pb2_grpc

    _Context = admin_pb2_grpc._ServicerContext

_ONLY = (
    "only root, the controller's user and the group of `admin_group` in controller.toml may see those of other users"
)


@dataclass(frozen=True, slots=True)
class Access:
    """Jobs that a caller may see."""

    every_job: bool
    user: str = ""
    """Where not every job: the user whose jobs these are; empty: there are none."""

    def sees(self, user: str) -> bool:
        """Return whether the caller may see the jobs of that user."""
        return self.every_job or (bool(self.user) and self.user == user)


EVERY_JOB = Access(every_job=True)


class AccessRules:
    """The rules of one socket. Invariant: a user's name that the caller states counts only from `web_uid`."""

    def __init__(self, viewer: Viewer, *, admin: bool, group: int | None, web_uid: int | None) -> None:
        """`admin`: only root and the controller's user can open the socket. `group` can open it; None: all users can."""
        self._viewer = viewer
        self._admin = admin
        self._group = group
        self._web_uid = web_uid

    async def of(self, context: _Context, hidden_by: frozenset[str] = JOBS) -> Access:
        """Return what the caller may see: where Slurm's settings are not known yet, as if jobs were private.

        `hidden_by`: words of PrivateData with which a caller sees only what is their own. Raises CallRefused where the call
        names a user without permission.
        """
        named = _named(context)
        uid = uid_of(context.peer())
        if self._web_uid is not None and uid == self._web_uid and not self._admin:
            return await self._of_web(named, hidden_by)
        if named is not None:
            raise CallRefused(
                Reason.USER_NOT_ACCEPTED,
                "only the user `web_user` of controller.toml may make calls for other users, through status.sock",
            )
        if self._admin or self._group is not None or not self._private(hidden_by):
            return EVERY_JOB
        return Access(every_job=False, user=(await caller_of(context.peer())).user)

    async def of_change(self, context: _Context) -> Access:
        """Return the same for a call that changes something. Raises CallRefused for headway-web, which only reads."""
        if self._web_uid is not None and uid_of(context.peer()) == self._web_uid and not self._admin:
            raise CallRefused(Reason.USER_NOT_ACCEPTED, "headway-web may change nothing: its service has no rights")
        return await self.of(context)

    async def _of_web(self, named: str | None, hidden_by: frozenset[str]) -> Access:
        """Return what the user that headway-web names may see; None: it names no user."""
        if named is not None and not USER_NAME.fullmatch(named):
            raise CallRefused(Reason.USER_NOT_ACCEPTED, f"{named[:40]!r} is not the name of a user")
        if self._group is None:
            return Access(every_job=not self._private(hidden_by), user=named or "")
        # With a group, other users cannot open the socket: through the page they see their own jobs, and no more.
        member = named is not None and await is_member(named, self._group)
        return Access(every_job=member, user=named or "")

    def _private(self, hidden_by: frozenset[str]) -> bool:
        """Return whether PrivateData has one of these words; True while it is not known."""
        facts = self._viewer.controller.facts
        return is_private(None if facts is None else facts.settings, hidden_by)


def private_refusal(access: Access) -> CallRefused:
    """Return the refusal of a call about jobs that the caller may not see."""
    if access.user:
        text = f"jobs are private here (PrivateData in slurm.conf), and Headway knows no such job of {access.user}; {_ONLY}"
    else:
        text = f"this cluster keeps jobs private (PrivateData in slurm.conf): {_ONLY}"
    return CallRefused(Reason.JOBS_PRIVATE, text)


def _named(context: _Context) -> str | None:
    """Return the user that the call names; None: none."""
    for key, value in context.invocation_metadata() or ():
        if key == USER:
            return value if isinstance(value, str) else value.decode("utf-8", "replace")
    return None
