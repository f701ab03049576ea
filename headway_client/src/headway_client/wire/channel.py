"""Target and options of a channel of gRPC, for both clients, and the pieces of an answer."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from headway_client.errors import AnswerTooLargeError, InvalidRequestError

SERVICE = "/headway.v1.Admin/"
"""Name of the service. It holds the protocol's version: a controller of another version does not know the call."""
LISTENING = "headway-listening"
"""Key in the first metadata of a stream of events: the controller listens, however long no event comes."""
USER = "headway-user"
"""Key in the metadata of a call for another user."""
MAX_REQUEST_BYTES = 64 << 10
"""The controller reads no longer ones."""
_MOST = 2**31 - 1

Options = list[tuple[str, int]]
Metadata = tuple[tuple[str, str], ...]


def target(path: Path) -> str:
    """Return gRPC's name of a Unix socket. Names are URIs: what has a meaning there is escaped."""
    return f"unix:{quote(str(path.absolute()))}"


def options(max_bytes: int) -> Options:
    """Return the options of a channel, for messages of at most that many bytes."""
    return [
        ("grpc.max_receive_message_length", min(max_bytes, _MOST)),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),  # a preemption is asked for once; waits ask again by themselves
        # Else channels to the same socket share connections, and the pause after one that failed.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def metadata_for(user: str | None) -> Metadata:
    """Return the metadata of calls for that user; None: for the user of this process. Raises InvalidRequestError."""
    if user is None:
        return ()
    if not user.isascii() or not user.isprintable():
        raise InvalidRequestError(f"{user[:40]!r} is not the name of a user")
    return ((USER, user),)


def check_request(request: bytes) -> bytes:
    """Return the request. Raises InvalidRequestError when it is too long."""
    if len(request) > MAX_REQUEST_BYTES:
        raise InvalidRequestError(f"the request has {len(request)} bytes; {MAX_REQUEST_BYTES} are allowed")
    return request


class Pieces:
    """The messages of an answer. Invariant: together they have at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = self._left = max_bytes
        self.messages: list[bytes] = []

    def add(self, message: bytes) -> None:
        """Keep one more. Raises AnswerTooLargeError."""
        self._left -= len(message)
        if self._left < 0:
            raise too_large(self._max_bytes)
        self.messages.append(message)


def too_large(max_bytes: int) -> AnswerTooLargeError:
    """Return the error of an answer that is too large."""
    return AnswerTooLargeError(
        f"the answer has more than {max_bytes} bytes; give a client that may read it a larger max_answer_bytes"
    )
