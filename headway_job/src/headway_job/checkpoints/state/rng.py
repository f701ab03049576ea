"""The state of the random number generators: torch, CUDA's current device, `random`, and NumPy's global generator."""

from __future__ import annotations

import logging
import random
import sys
from typing import Any, Dict, Mapping

import torch

_log = logging.getLogger("headway_job")
_OTHER = "numpy_other"
"""Key of the state of NumPy's generator if it is not the MT19937 of NumPy's default: earlier versions of this package ignore it."""


def capture() -> Dict[str, Any]:
    """Return the state of all generators that are in use."""
    version, numbers, gauss = random.getstate()
    rng: Dict[str, Any] = {"torch": torch.get_rng_state(), "python": [version, list(numbers), gauss]}
    rng.update(_numpy_state())
    if _cuda_is_used():
        rng["cuda"] = torch.cuda.get_rng_state()
    return rng


def restore(rng: Mapping[str, Any]) -> None:
    """Set the generators to a state that `capture` returned."""
    torch.set_rng_state(rng["torch"])
    version, numbers, gauss = rng["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "numpy" in rng:
        kind, keys, position, has_gauss, cached = rng["numpy"]
        _set_numpy((kind, keys.numpy().astype("uint32"), position, has_gauss, cached))
    elif _OTHER in rng:
        _set_numpy(_with_arrays(rng[_OTHER]))
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


# ---- NumPy's global generator, which a program can replace (numpy.random.set_bit_generator)


def _numpy_state() -> Dict[str, Any]:
    """Return the entry of the state for NumPy; empty = it is not in use."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "random"):
        return {}
    found = numpy.random.get_state(legacy=False)
    if found["bit_generator"] != "MT19937":
        return {_OTHER: _without_arrays(found)}
    keys = torch.tensor(found["state"]["key"].astype("int64"), device="cpu")
    position, has_gauss, cached = int(found["state"]["pos"]), int(found["has_gauss"]), float(found["gauss"])
    return {"numpy": ["MT19937", keys, position, has_gauss, cached]}


def _set_numpy(state: Any) -> None:
    import numpy as np

    try:
        np.random.set_state(state)
    except (TypeError, ValueError, KeyError) as error:
        # The program uses another kind of generator than the one that has saved.
        _log.warning(
            "The state of NumPy's global generator is not restored: %s. Choose the same kind of generator as before, ahead of "
            "headway_job.checkpoint.",
            error,
        )


def _without_arrays(value: Any) -> Any:
    """Return a state in which lists of integers stand for arrays, which checkpoints cannot have."""
    if isinstance(value, dict):
        return {key: _without_arrays(of) for key, of in value.items()}
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return {"array": [str(value.dtype), value.tolist()]} if value.ndim else value.item()
    return value


def _with_arrays(value: Any) -> Any:
    """Return what `_without_arrays` was given."""
    import numpy as np

    if not isinstance(value, dict):
        return value
    if set(value) == {"array"}:
        kind, numbers = value["array"]
        return np.array(numbers, dtype=kind)
    return {key: _with_arrays(of) for key, of in value.items()}
