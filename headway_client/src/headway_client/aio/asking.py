"""One call of gRPC, for the client of asyncio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc.aio
from headway_client.calls import Call
from headway_client.wire.channel import Metadata, Pieces, options, target


async def ask(
    path: Path, call: Call[Any], request: bytes, max_bytes: int, limit_s: float, metadata: Metadata = ()
) -> list[bytes]:
    """Return the messages of the answer. Raises grpc.RpcError and AnswerTooLargeError."""
    async with grpc.aio.insecure_channel(target(path), options=options(max_bytes)) as channel:
        if not call.pieces:
            unary: Any = channel.unary_unary(call.path)  # without serializers: bytes
            answer: bytes | None = await unary(request, timeout=limit_s, metadata=metadata)
            return [] if answer is None else [answer]  # gRPC lets an answer without a message pass
        found = Pieces(max_bytes)
        stream: Any = channel.unary_stream(call.path)
        async for piece in stream(request, timeout=limit_s, metadata=metadata):
            found.add(piece)
        return found.messages
