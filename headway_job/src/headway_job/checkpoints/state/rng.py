"""The state of the random number generators: torch, CUDA's current device, `random`, and NumPy's global generator."""

from __future__ import annotations

import random
import sys
from typing import Any, Dict, Mapping

import torch


def capture() -> Dict[str, Any]:
    """Return the state of all generators that are in use."""
    version, numbers, gauss = random.getstate()
    rng: Dict[str, Any] = {"torch": torch.get_rng_state(), "python": [version, list(numbers), gauss]}
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        kind, keys, position, has_gauss, cached = numpy.random.get_state()
        rng["numpy"] = [
            kind,
            torch.tensor(keys.astype("int64"), device="cpu"),
            int(position),
            int(has_gauss),
            float(cached),
        ]
    if _cuda_is_used():
        rng["cuda"] = torch.cuda.get_rng_state()
    return rng


def restore(rng: Mapping[str, Any]) -> None:
    """Set the generators to a state that `capture` returned."""
    torch.set_rng_state(rng["torch"])
    version, numbers, gauss = rng["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "numpy" in rng:
        import numpy as np

        kind, keys, position, has_gauss, cached = rng["numpy"]
        np.random.set_state((kind, keys.numpy().astype("uint32"), position, has_gauss, cached))
    if "cuda" in rng and torch.cuda.is_available():
        torch.cuda.set_rng_state(rng["cuda"])


def derive(seed: int, step: int, rank: int) -> None:
    """Seed the generators of a rank that is not in the checkpoint, with other numbers than any other rank, the same each time."""
    derived = random.Random(f"{seed} {step} {rank}").getrandbits(62)  # noqa: S311 - seeds, no secrets
    torch.manual_seed(derived)
    random.seed(derived)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(derived % (1 << 32))


def _cuda_is_used() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call,unused-ignore]
