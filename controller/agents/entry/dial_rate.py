"""Limit on the streams that one node opens: each of them costs two accesses to the store, and lines of the log."""

from __future__ import annotations

import time
from collections.abc import Callable

import grpc

from controller.agents.entry.admission import RefusedError
from policies.serving.runtime.tasks.token_bucket import TokenBucket

_PER_S = 0.5
"""An agent pauses for up to half a minute between two dials, and dials at once after a stream that has lasted."""
_BURST = 100
_MOST_NODES = 8192


class DialRate:
    """Invariant: a node opens at most `_BURST` streams at once and `_PER_S` a second for long; no other node has to wait for it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._buckets: dict[str, TokenBucket] = {}
        """Budget of each node that has opened streams lately. Bound: `_MOST_NODES`, and the nodes that dial without a pause."""

    def take(self, node: str) -> None:
        """Count a stream of an admitted node. Raises RefusedError."""
        now_s = self._monotonic()
        bucket = self._buckets.get(node)
        if bucket is None:
            self._forget_full(now_s)
            bucket = self._buckets[node] = TokenBucket(_PER_S, _BURST, now_s)
        if not bucket.take(now_s):
            raise RefusedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{node} has opened too many streams; connect again later"
            )

    def _forget_full(self, now_s: float) -> None:
        if len(self._buckets) >= _MOST_NODES:
            self._buckets = {node: bucket for node, bucket in self._buckets.items() if bucket.left(now_s) < _BURST}
