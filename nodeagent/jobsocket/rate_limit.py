"""Limits on the connections and frames of each user. Pure: the caller gives the time."""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.serving.runtime.tasks.token_bucket import TokenBucket

_CONNECTS_PER_S = 50.0
_USER_FRAMES_PER_S = 1000.0
_USER_FRAMES_BURST = 4000.0
_BYTES_PER_TOKEN = 1024
_FORGET_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits; AgentSettings describes each."""

    connections: int = 4096
    connections_per_user: int = 256
    frames_per_s: float = 50.0
    frames_burst: int = 100


@dataclass(slots=True)
class _User:
    """The share of one user. A frame costs tokens by its size, as the time to read it does."""

    connects: TokenBucket
    frames: TokenBucket
    connections: int = 0
    seen_s: float = 0.0


@dataclass(slots=True)
class ConnectionAdmission:
    """Decides which users may connect, and which may go on sending.

    Invariant: a user takes nothing from another user except places among `limits.connections`, and of these at most
    `limits.connections_per_user`.
    """

    limits: Limits
    connections: int = 0
    _users: dict[int, _User] = field(default_factory=dict)
    """Bound: the users with a connection, or an attempt within `_FORGET_AFTER_S`."""

    def refusal(self, uid: int, now_s: float) -> str | None:
        """Return why a new connection of this user is refused before its process is identified; None = it is not."""
        user = self._user(uid, now_s)
        if self.connections >= self.limits.connections:
            return "too many connections"
        if user.connections >= self.limits.connections_per_user:
            return "too many connections of this user"
        if not user.connects.take(now_s):
            return "too many attempts of this user"
        return None

    def opened(self, uid: int, now_s: float) -> None:
        """A connection of this user was accepted."""
        self.connections += 1
        self._user(uid, now_s).connections += 1

    def closed(self, uid: int, now_s: float) -> None:
        """A connection of this user was closed."""
        self.connections -= 1
        self._user(uid, now_s).connections -= 1

    def may_send(self, uid: int, size: int, now_s: float) -> bool:
        """Return True when the processes of this user, together, may send a frame of `size` bytes now."""
        return self._user(uid, now_s).frames.take(now_s, 1.0 + size // _BYTES_PER_TOKEN)

    def bucket(self, now_s: float) -> TokenBucket:
        """Return the bucket of a new connection."""
        return TokenBucket(self.limits.frames_per_s, self.limits.frames_burst, now_s)

    def forget_idle_users(self, now_s: float) -> None:
        """Forget users without a connection for a minute: their buckets are full again."""
        gone = [
            uid for uid, user in self._users.items() if not user.connections and now_s - user.seen_s > _FORGET_AFTER_S
        ]
        for uid in gone:
            del self._users[uid]

    def _user(self, uid: int, now_s: float) -> _User:
        user = self._users.get(uid)
        if user is None:
            user = self._users[uid] = _User(
                connects=TokenBucket(_CONNECTS_PER_S, 2.0 * self.limits.connections_per_user, now_s),
                frames=TokenBucket(_USER_FRAMES_PER_S, _USER_FRAMES_BURST, now_s),
            )
        user.seen_s = now_s
        return user
