"""Authentication of a stream between agent and controller: its credential, its key, and the order of its messages.

Pure: no clock, no I/O. The credential carries a key that only its maker and its reader know; every message is signed with this
key, over its direction, its number and its content. So a message that was altered, cut, repeated, moved or taken from another
stream is refused, with the reason.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from nodeagent.errors import AgentError

METHOD = "/headway.v1.Agents/Connect"
METADATA_KEY = "headway-credential"
KEY_BYTES = 32
MAC_BYTES = 32
MAX_AGE_S = 60.0
"""An older credential opens no stream."""
MAX_AHEAD_S = 60.0
"""Clocks may differ by so much: a credential from further in the future opens no stream. munged allows some minutes."""
REPLAY_KEEP_S = 5 * (MAX_AGE_S + MAX_AHEAD_S)
"""Time for which a credential is remembered: far longer than it is valid, since clocks may be set back by hand."""
MAX_REMEMBERED = 65_536
"""Maximum number of credentials that are remembered where there are few agents."""
A_NODE = 30
"""Credentials that are remembered for each of many agents: those that open a stream every 20 s for ten minutes."""
_SHARES = 16
"""Credentials from the address of a node take at most one part in so many: otherwise it could keep all others out."""
_SHARES_OF_A_NAME = 256
"""Those of one node's name from another address take at most one part in so many."""


_MAGIC = b"HWA1"
_HEAD = struct.Struct(f">4sH32sd{KEY_BYTES}s")


class SessionFault(Enum):
    """The reason why a stream or a message is refused."""

    MALFORMED = "malformed"
    """The bytes are not a credential of Headway, or a mac has the wrong length."""
    OTHER_METHOD = "other method"
    OTHER_HELLO = "other hello"
    """The credential belongs to another first message."""
    TOO_OLD = "too old"
    FROM_THE_FUTURE = "from the future"
    REPLAYED = "replayed"
    TOO_MANY = "too many"
    """No more credentials can be remembered; forgetting one would allow its second use."""
    FORGED = "forged"
    """The message was altered or cut, or signed with another key, direction or number."""
    REPEATED = "repeated"
    """The signature is right, but the message was accepted before."""
    SKIPPED = "skipped"
    """The signature is right, but earlier messages are missing."""


class SessionError(AgentError):
    """The stream must end; `fault` is the reason."""

    def __init__(self, fault: SessionFault, detail: str) -> None:
        super().__init__(f"{fault.value}: {detail}")
        self.fault = fault


class Direction(Enum):
    """The sender of a message: a signature for one direction is not valid in the other."""

    FROM_AGENT = b"A"
    FROM_CONTROLLER = b"C"


@dataclass(frozen=True, slots=True)
class Ticket:
    """The payload of a credential."""

    method: str
    hello_digest: bytes
    time_s: float
    """Time at which it was made, by its maker's clock, seconds since the Unix epoch."""
    key: bytes

    def pack(self) -> bytes:
        """Return the ticket as bytes; `unpack` is the inverse."""
        method = self.method.encode()
        return _HEAD.pack(_MAGIC, len(method), self.hello_digest, self.time_s, self.key) + method

    @staticmethod
    def unpack(payload: bytes) -> Ticket:
        """Parse strictly. Raises SessionError."""
        try:
            magic, length, digest, time_s, key = _HEAD.unpack_from(payload)
            method = payload[_HEAD.size :].decode()
        except (struct.error, UnicodeDecodeError) as error:
            raise SessionError(SessionFault.MALFORMED, "the payload of the credential is not one of Headway") from error
        if magic != _MAGIC or len(payload) != _HEAD.size + length or not abs(time_s) < float("inf"):
            raise SessionError(SessionFault.MALFORMED, "the payload of the credential is not one of Headway")
        return Ticket(method, digest, time_s, key)

    def __repr__(self) -> str:
        """Return a text without the key."""
        return f"Ticket({self.method}, {self.time_s})"


def make_ticket(hello: bytes, time_s: float, key: bytes) -> Ticket:
    """Make the ticket for a stream whose first message is `hello`."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a session key has {KEY_BYTES} bytes, not {len(key)}")
    return Ticket(METHOD, hashlib.sha256(hello).digest(), time_s, key)


def check_ticket(ticket: Ticket, now_s: float) -> None:
    """Check that the ticket may open a stream now. Raises SessionError. `check_hello` checks the first message."""
    if ticket.method != METHOD:
        raise SessionError(SessionFault.OTHER_METHOD, f"the credential is for {ticket.method[:80]!r}")
    age_s = now_s - ticket.time_s
    if age_s > MAX_AGE_S:
        raise SessionError(SessionFault.TOO_OLD, f"made {age_s:.0f} s ago by this clock; the limit is {MAX_AGE_S:g}")
    if age_s < -MAX_AHEAD_S:
        raise SessionError(
            SessionFault.FROM_THE_FUTURE, f"made {-age_s:.0f} s from now by this clock; the limit is {MAX_AHEAD_S:g}"
        )


def check_hello(ticket: Ticket, hello: bytes) -> None:
    """Check that the credential was made for this first message. Raises SessionError."""
    if not hmac.compare_digest(hashlib.sha256(hello).digest(), ticket.hello_digest):
        raise SessionError(SessionFault.OTHER_HELLO, "the credential was made for another hello")


def mac(key: bytes, direction: Direction, number: int, body: bytes) -> bytes:
    """Return the signature of one message."""
    return hmac.new(key, direction.value + struct.pack(">Q", number) + body, hashlib.sha256).digest()


class Signer:
    """Numbers and signs outgoing messages. Without a key (Unix sockets and loopback) it only numbers them."""

    def __init__(self, key: bytes | None, direction: Direction) -> None:
        self._key = key
        self._direction = direction
        self._next = 0

    def sign(self, body: bytes) -> tuple[int, bytes]:
        """Return number and mac of the next message."""
        number = self._next
        self._next += 1
        return number, b"" if self._key is None else mac(self._key, self._direction, number, body)


class Verifier:
    """Checks incoming messages. Invariant: it accepts exactly the messages that the other side signed, in order, each once."""

    def __init__(self, key: bytes | None, direction: Direction) -> None:
        self._key = key
        self._direction = direction
        self._next = 0

    def take(self, number: int, body: bytes, signature: bytes) -> None:
        """Accept a message. Raises SessionError, after which the stream must end."""
        if self._key is None:
            if signature:
                raise SessionError(
                    SessionFault.MALFORMED, "the message is signed, but no credential opened this stream"
                )
        else:
            self._check(self._key, number, body, signature)
        if number < self._next:
            raise SessionError(SessionFault.REPEATED, f"message {number} was accepted before; the next is {self._next}")
        if number > self._next:
            raise SessionError(SessionFault.SKIPPED, f"message {number} came, but the next is {self._next}")
        self._next += 1

    def _check(self, key: bytes, number: int, body: bytes, signature: bytes) -> None:
        if len(signature) != MAC_BYTES:
            raise SessionError(SessionFault.MALFORMED, f"a mac of {len(signature)} bytes")
        if not 0 <= number < 1 << 64 or not hmac.compare_digest(mac(key, self._direction, number, body), signature):
            raise SessionError(
                SessionFault.FORGED, "the message was altered or cut, or belongs to another stream or direction"
            )


class ReplayCache:
    """Remembers the credentials that opened a stream. Invariant: none is accepted twice within `keep_s`.

    Bounded: while `limit` credentials are remembered, or the share of a caller, new ones are refused. A caller with the address of
    its node has a sixteenth. Callers with other addresses, such as one that a router puts in the place of many, have three quarters
    together, and half of all at one address: they keep no node out that calls from its own. Times are of a clock that is never set,
    so that no credential is forgotten early.
    """

    def __init__(self, keep_s: float = REPLAY_KEEP_S, limit: int = MAX_REMEMBERED) -> None:
        self._keep_s = keep_s
        self._limit = limit
        self._seen: set[bytes] = set()
        """Digests of tickets. Bound: `limit`."""
        self._order: deque[tuple[float, bytes, tuple[_Share, ...]]] = deque()
        """The same digests with their times and shares, oldest first. Bound: `limit`."""
        self._taken: Counter[_Share] = Counter()
        """Number of them by share. Bound: as many."""

    def __len__(self) -> int:
        return len(self._seen)

    def check(self, ticket: Ticket, monotonic_s: float) -> None:
        """Raise SessionError if the credential was accepted before."""
        self._forget_old(monotonic_s)
        if _digest(ticket) in self._seen:
            raise SessionError(SessionFault.REPLAYED, "this credential has opened a stream before")

    def take(self, ticket: Ticket, monotonic_s: float, machine: str = "", node: str = "") -> None:
        """Accept a credential. Raises SessionError if it was accepted before, or when the share of its caller is used up.

        `machine`: the caller's address; empty = not limited. `node`: the name that it gives; empty = the address is its node's.
        """
        self.check(ticket, monotonic_s)
        shares = _shares(machine, node)
        for share in shares:
            most = max(1, self._limit * share.parts // share.of)
            if self._taken[share] >= most:
                problem = f"{most} credentials of {share.whose} are remembered already; dial again later"
                raise SessionError(SessionFault.TOO_MANY, problem)
        if len(self._seen) >= self._limit:
            raise SessionError(
                SessionFault.TOO_MANY, f"{self._limit} credentials are remembered already; dial again later"
            )
        digest = _digest(ticket)
        self._seen.add(digest)
        self._order.append((monotonic_s, digest, shares))
        self._taken.update(shares)

    def _forget_old(self, monotonic_s: float) -> None:
        while self._order and self._order[0][0] + self._keep_s < monotonic_s:
            _, digest, shares = self._order.popleft()
            self._seen.discard(digest)
            self._taken.subtract(shares)
            for share in shares:
                if not self._taken[share]:
                    del self._taken[share]


class _Share(NamedTuple):
    """A part of the memory for credentials of some callers."""

    whose: str
    parts: int
    of: int


_ELSEWHERE = _Share("callers with addresses of no node", 3, 4)


@lru_cache(maxsize=16_384)
def _shares(machine: str, node: str) -> tuple[_Share, ...]:
    if not machine:
        return ()
    if not node:
        return (_Share(f"this machine, {machine},", 1, _SHARES),)
    return (
        _Share(f"{node} at {machine}", 1, _SHARES_OF_A_NAME),
        _Share(f"callers at {machine}", 1, 2),
        _ELSEWHERE,
    )


def _digest(ticket: Ticket) -> bytes:
    return hashlib.sha256(ticket.key).digest()
