"""Seeds of everything random in a training, derived from its one seed and their purpose."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

_LARGEST = 1 << 31


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """Return the source of random numbers of that path, for example ("exploration", 17), independent of other paths and seeds."""
    text = json.dumps([seed, *path]).encode()
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest()))


def seeds(count: int, seed: int, *path: int | str) -> list[int]:
    """Return `count` seeds of that path, for example one for each of several environments."""
    return [int(each) for each in generator(seed, *path).integers(_LARGEST, size=count)]


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Make the same code compute the same numbers in every process inside the `with` block: it seeds the global sources, and lets
    torch use one thread and only deterministic algorithms."""
    import torch

    # cuBLAS reads it when it is first used, and has no other switch.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    threads, before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    python, numpy, of_torch = seeds(3, seed, "global sources")
    random.seed(python)
    np.random.seed(numpy)
    torch.manual_seed(of_torch)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(before)


def global_sources() -> dict[str, Any]:
    """Return the states of the global sources of random numbers: of Python, numpy, torch and its GPUs."""
    import torch

    has_gpus = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if has_gpus else [],
    }


def set_global_sources(state: Mapping[str, Any]) -> None:
    """Restore such states."""
    import torch

    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
