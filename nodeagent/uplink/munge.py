"""MUNGE credentials through libmunge: they prove the sender and the time, and can be read by one uid only.

`Munge` calls the library in a daemon thread, one call at a time, each with a deadline: libmunge waits many seconds for a munged
that hangs, and neither the agent nor the controller may wait so long.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from nodeagent.errors import AgentError
from policies.serving.runtime.tasks.single_thread import Worker

Result = TypeVar("Result")

LIBRARY = "libmunge.so.2"
DEADLINE_S = 2.0
"""A healthy munged answers within milliseconds."""
TTL_S = 60
"""munged rejects a credential that is older."""
MAX_CREDENTIAL_CHARS = 16 << 10
"""Valid credentials have about 350; a longer text is not passed to munged."""

# Numbers of munge.h.
_OPT_CIPHER, _OPT_TTL, _OPT_ENCODE_TIME, _OPT_SOCKET, _OPT_UID = 0, 4, 6, 8, 9
_CIPHER_AES128 = 4
_SUCCESS = 0


class MungeFault(Enum):
    """The reason why a credential could not be made, or must not be trusted."""

    NO_LIBRARY = "no library"
    NO_SOCKET = "no socket"
    """munged does not run, or listens on another path."""
    TIMEOUT = "timeout"
    EXPIRED = "expired"
    REWOUND = "rewound"
    """The credential was made in the future, by this machine's clock."""
    REPLAYED = "replayed"
    UNAUTHORIZED = "unauthorized"
    """Only another uid may read it."""
    INVALID = "invalid"
    """The credential was not made with this cluster's key."""
    FAILED = "failed"


_FAULTS = {
    6: MungeFault.NO_SOCKET,
    7: MungeFault.TIMEOUT,
    8: MungeFault.INVALID,
    9: MungeFault.INVALID,
    10: MungeFault.INVALID,
    11: MungeFault.INVALID,
    12: MungeFault.INVALID,
    13: MungeFault.INVALID,
    14: MungeFault.INVALID,
    15: MungeFault.EXPIRED,
    16: MungeFault.REWOUND,
    17: MungeFault.REPLAYED,
    18: MungeFault.UNAUTHORIZED,
}
_MENDS = {
    MungeFault.NO_LIBRARY: "install the package libmunge2",
    MungeFault.NO_SOCKET: "start munged, or correct the path of its socket",
    MungeFault.TIMEOUT: "check whether munged hangs",
    MungeFault.EXPIRED: "synchronize the clocks of both machines (NTP)",
    MungeFault.REWOUND: "synchronize the clocks of both machines (NTP)",
    MungeFault.INVALID: "install the same munge.key on both machines",
    MungeFault.UNAUTHORIZED: "configure at the sender the uid as which the receiver runs",
}


class MungeError(AgentError):
    """A credential could not be made, or must not be trusted; `fault` is the reason."""

    def __init__(self, fault: MungeFault, detail: str) -> None:
        mend = _MENDS.get(fault)
        super().__init__(f"MUNGE: {fault.value}: {detail}{f'; {mend}' if mend else ''}")
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Credential:
    """The verified content of a credential."""

    payload: bytes
    uid: int
    gid: int
    encode_time_s: int
    """Seconds since the Unix epoch, by the clock of the machine that made it."""


class CredentialCodec(Protocol):
    """Encodes and decodes credentials."""

    async def encode(self, payload: bytes, only_uid: int | None = None) -> str:
        """Return an encrypted credential with this payload. Raises MungeError."""

    async def decode(self, credential: str) -> Credential:
        """Return the content of a credential, once. Raises MungeError."""


class Munge:
    """libmunge in a thread of its own. Invariant: no call of a method takes longer than the deadline, whatever munged does."""

    def __init__(self, socket: Path | None = None, deadline_s: float = DEADLINE_S) -> None:
        """Without `socket` libmunge uses its default path. Raises MungeError(NO_LIBRARY)."""
        self._library = _library()
        self._socket = socket
        self._deadline_s = deadline_s
        self._worker = Worker("munge")

    async def encode(self, payload: bytes, only_uid: int | None = None) -> str:
        """Return an encrypted credential with this payload; with `only_uid` no other uid can read it. Raises MungeError."""
        return await self._in_time(lambda: self._encode(payload, only_uid))

    async def decode(self, credential: str) -> Credential:
        """Return the content of a credential; munged decodes each only once. Raises MungeError."""
        if not 0 < len(credential) <= MAX_CREDENTIAL_CHARS or not credential.isascii():
            raise MungeError(MungeFault.INVALID, "empty, too long, or not ASCII")
        return await self._in_time(lambda: self._decode(credential.encode("ascii")))

    def close(self) -> None:
        """End the thread; no method may be called any more."""
        self._worker.end()

    async def _in_time(self, call: Callable[[], Result]) -> Result:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._worker.run(call)
        except TimeoutError:
            raise MungeError(MungeFault.TIMEOUT, f"no answer within {self._deadline_s:g} s") from None

    def _encode(self, payload: bytes, only_uid: int | None) -> str:
        with _Context(self._library, self._socket) as context:
            context.set_int(_OPT_CIPHER, _CIPHER_AES128)
            context.set_int(_OPT_TTL, TTL_S)
            if only_uid is not None:
                context.set_int(_OPT_UID, only_uid)
            text = ctypes.c_void_p()
            status = self._library.munge_encode(ctypes.byref(text), context.pointer, payload, len(payload))
            try:
                context.check(status)
                return ctypes.string_at(text.value or 0).decode("ascii")
            finally:
                _free(text)

    def _decode(self, credential: bytes) -> Credential:
        with _Context(self._library, self._socket) as context:
            data, length = ctypes.c_void_p(), ctypes.c_int()
            uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
            status = self._library.munge_decode(
                credential, context.pointer, *map(ctypes.byref, (data, length, uid, gid))
            )
            try:
                context.check(status)
                payload = ctypes.string_at(data.value, length.value) if data.value else b""
            finally:
                _free(data)
            return Credential(payload, uid.value, gid.value, context.get_time(_OPT_ENCODE_TIME))


class _Context:
    """A munge_ctx_t for one call: encoding and decoding must not share one."""

    def __init__(self, library: ctypes.CDLL, socket: Path | None) -> None:
        self._library = library
        self._socket = socket
        self.pointer = ctypes.c_void_p()

    def __enter__(self) -> _Context:
        self.pointer = ctypes.c_void_p(self._library.munge_ctx_create())
        if not self.pointer:
            raise MungeError(MungeFault.FAILED, "no memory for a context")
        if self._socket is not None:
            path = ctypes.c_char_p(bytes(self._socket))
            self.check(self._library.munge_ctx_set(self.pointer, ctypes.c_int(_OPT_SOCKET), path))
        return self

    def __exit__(self, *_: object) -> None:
        self._library.munge_ctx_destroy(self.pointer)

    def set_int(self, option: int, value: int) -> None:
        self.check(self._library.munge_ctx_set(self.pointer, ctypes.c_int(option), ctypes.c_int(value)))

    def get_time(self, option: int) -> int:
        value = ctypes.c_long()
        self.check(self._library.munge_ctx_get(self.pointer, ctypes.c_int(option), ctypes.byref(value)))
        return value.value

    def check(self, status: int) -> None:
        """Raises MungeError if the call failed."""
        if status == _SUCCESS:
            return
        said = self._library.munge_ctx_strerror(self.pointer) or self._library.munge_strerror(status) or b""
        raise MungeError(_FAULTS.get(status, MungeFault.FAILED), said.decode(errors="replace"))


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise MungeError(MungeFault.NO_LIBRARY, str(error)) from error
    for name in ("munge_strerror", "munge_ctx_strerror"):
        getattr(library, name).restype = ctypes.c_char_p
    library.munge_strerror.argtypes = [ctypes.c_int]
    library.munge_ctx_strerror.argtypes = [ctypes.c_void_p]
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
    library.munge_ctx_destroy.restype = None
    library.munge_encode.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    library.munge_decode.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 5]
    # munge_ctx_get and munge_ctx_set are variadic: each call gives its own types.
    return library


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.free.argtypes = [ctypes.c_void_p]
    library.free.restype = None
    return library


def _free(pointer: ctypes.c_void_p) -> None:
    _libc().free(pointer)
