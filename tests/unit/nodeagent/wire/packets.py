"""Frames as a job sends them."""

from __future__ import annotations

from typing import Any

import msgpack

SIGNATURE = "ab" * 32


def fields(kind: str, seq: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a valid frame of that type, as a map."""
    bodies: dict[str, dict[str, Any]] = {
        "hello": {
            "pid": 100,
            "rank": 0,
            "world_size": 2,
            "local_rank": 0,
            "torch": "2.13.0",
            "device": "cpu",
            "script": "train.py",
            "restart": 0,
            "job_id": 7,
            "hook_version": "1",
        },
        "model": {
            "param_bytes": 4_000_000,
            "num_tensors": 4,
            "num_params": 1_000_000,
            "optimizers": 1,
            "groups": [{"name": "default", "size": 2, "backend": "gloo"}],
            "signature": SIGNATURE,
            "batch_size": -1,
        },
        "steps": {"steps": 10, "first_ns": 1, "last_ns": 9, "window_steps": 10, "window_s": 1.0},
        "profile": {
            "steps": 20,
            "step_s": 0.2,
            "compute_s": 0.1,
            "comm_exposed_s": 0.1,
            "comm_hidden_s": 0.0,
            "kinds": {"all_reduce": {"count": 2.0, "bytes": 4e6, "seconds": 0.1}},
        },
        "no_profile": {"reason": "graph"},
        "checkpoint": {"rank": 0, "world_size": 2, "start": 0, "saved": -1, "saving": False, "open": True},
        "saved": {"id": "p1.1", "step": 40, "complete": True, "problem": "", "own": False},
        "bye": {},
    }
    return {"v": 1, "type": kind, "seq": seq, **bodies.get(kind, {}), **changes}


def packet(kind: str, seq: int = 0, **changes: Any) -> bytes:
    """Return a valid frame of that type, packed."""
    packed: bytes = msgpack.packb(fields(kind, seq, **changes))
    return packed
