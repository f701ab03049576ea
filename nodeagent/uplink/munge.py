"""MUNGE credentials through libmunge: who sent this, when, and to whom it is readable.

`Munge` calls the library in a daemon thread, one call at a time, each with a deadline: libmunge itself waits for a hung munged
for many seconds, and neither the agent nor the controller may.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar

from nodeagent.errors import AgentError

Result = TypeVar("Result")

LIBRARY = "libmunge.so.2"
DEADLINE_S = 2.0
"""A munged that is well answers within milliseconds."""
TTL_S = 60
"""munged takes no credential of ours that is older."""
MAX_CREDENTIAL_CHARS = 16 << 10
"""Ours are about 350; what is longer is not even shown to munged."""

# Numbers of munge.h.
_OPT_CIPHER, _OPT_TTL, _OPT_ENCODE_TIME, _OPT_SOCKET, _OPT_UID = 0, 4, 6, 8, 9
_CIPHER_AES128 = 4
_SUCCESS = 0


class MungeFault(Enum):
    """Why there is no credential, or none to trust."""

    NO_LIBRARY = "no library"
    NO_SOCKET = "no socket"
    """munged does not run, or listens elsewhere."""
    TIMEOUT = "timeout"
    EXPIRED = "expired"
    REWOUND = "rewound"
    """Made in the future, by this machine's clock."""
    REPLAYED = "replayed"
    UNAUTHORIZED = "unauthorized"
    """Readable for another uid only."""
    INVALID = "invalid"
    """Not a credential of this cluster's key."""
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
    MungeFault.TIMEOUT: "look whether munged hangs",
    MungeFault.EXPIRED: "set both machines' clocks alike (NTP)",
    MungeFault.REWOUND: "set both machines' clocks alike (NTP)",
    MungeFault.INVALID: "give both machines the same munge.key",
    MungeFault.UNAUTHORIZED: "tell the sender which uid the receiver runs as",
}


class MungeError(AgentError):
    """No credential, or none to trust; `fault` is why."""

    def __init__(self, fault: MungeFault, detail: str) -> None:
        mend = _MENDS.get(fault)
        super().__init__(f"MUNGE: {fault.value}: {detail}{f'; {mend}' if mend else ''}")
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Credential:
    """What munged vouches for."""

    payload: bytes
    uid: int
    gid: int
    encode_time_s: int
    """By the clock of the machine that made it, seconds since the Unix epoch."""


class CredentialCodec(Protocol):
    """Makes and reads credentials."""

    async def encode(self, payload: bytes, only_uid: int | None = None) -> str:
        """A credential with that payload, encrypted. Raises MungeError."""

    async def decode(self, credential: str) -> Credential:
        """What is in it, once. Raises MungeError."""


class Munge:
    """libmunge behind one thread. Invariant: no call of a method takes longer than the deadline, whatever munged does."""

    def __init__(self, socket: Path | None = None, deadline_s: float = DEADLINE_S) -> None:
        """`socket` None: where libmunge looks by itself. Raises MungeError(NO_LIBRARY)."""
        self._library = _library()
        self._socket = socket
        self._deadline_s = deadline_s
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        Thread(target=self._serve, name="munge", daemon=True).start()

    async def encode(self, payload: bytes, only_uid: int | None = None) -> str:
        """A credential with that payload, encrypted; readable for that uid alone where one is given. Raises MungeError."""
        return await self._in_time(lambda: self._encode(payload, only_uid))

    async def decode(self, credential: str) -> Credential:
        """What is in it. munged gives every credential away once. Raises MungeError."""
        if not 0 < len(credential) <= MAX_CREDENTIAL_CHARS or not credential.isascii():
            raise MungeError(MungeFault.INVALID, "empty, too long, or not ASCII")
        return await self._in_time(lambda: self._decode(credential.encode("ascii")))

    def close(self) -> None:
        """No more calls."""
        self._work.put(None)

    async def _in_time(self, call: Callable[[], Result]) -> Result:
        future: Future[Result] = Future()
        self._work.put((future, call))
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise MungeError(MungeFault.TIMEOUT, f"no answer within {self._deadline_s:g} s") from None

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue  # whoever asked has given up
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - handed to the caller
                future.set_exception(error)

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
    """A munge_ctx_t for one call: they are not to be shared between encoding and decoding."""

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
        """Raises MungeError unless the call went well."""
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
    # munge_ctx_get and munge_ctx_set take any kind of last argument: each call gives its own types.
    return library


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.free.argtypes = [ctypes.c_void_p]
    library.free.restype = None
    return library


def _free(pointer: ctypes.c_void_p) -> None:
    _libc().free(pointer)
