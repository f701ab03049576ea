"""One call of gRPC, for the client that waits."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Callable, TypeVar

import grpc
from headway_client.calls import Call
from headway_client.wire.channel import Metadata, Pieces, options, target

T = TypeVar("T")


def ask(
    path: Path, call: Call[Any], request: bytes, max_bytes: int, limit_s: float, metadata: Metadata = ()
) -> list[bytes]:
    """Return the messages of the answer. Raises grpc.RpcError and AnswerTooLargeError."""
    with grpc.insecure_channel(target(path), options=options(max_bytes)) as channel:
        if not call.pieces:
            unary: Any = channel.unary_unary(call.path)  # without serializers: bytes
            answer: bytes | None = unary(request, timeout=limit_s, metadata=metadata)
            return [] if answer is None else [answer]  # gRPC lets an answer without a message pass
        found = Pieces(max_bytes)
        stream: Any = channel.unary_stream(call.path)
        for piece in stream(request, timeout=limit_s, metadata=metadata):
            found.add(piece)
        return found.messages


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Return the future result of work in a thread of its own: gRPC has time limits only for whole calls, not for a message.

    The thread ends with the call, at the latest when its channel is closed, and does not keep the program from ending.
    """
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            found.set_exception(error)

    threading.Thread(target=run, name="headway-client", daemon=True).start()
    return found
