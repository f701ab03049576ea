"""The state of a run: what is copied at a step boundary, and put back."""

from __future__ import annotations

import io
import random
import sys
from typing import Any, BinaryIO, Dict, List, Mapping, Tuple

import torch

from .mishaps import Damaged, Refused

_SHARED_NAMES = ("model", "optimizer", "scheduler")
_TOO_SMALL = 2
"""Stands for a tensor's size where only the kinds of things in a state are tried."""


class Parts:
    """The objects whose state makes up a checkpoint, by name. Shared ones are equal on all ranks: rank 0's is kept."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        """Raises Refused where one of them cannot be saved and read back."""
        self._objects: Dict[str, Any] = {}
        for name, given in objects.items():
            if isinstance(given, (list, tuple)):
                self._objects.update({f"{name}.{place}": _unwrapped(one) for place, one in enumerate(given)})
            elif given is not None:
                self._objects[name] = _unwrapped(given)
        for name, part in self._objects.items():
            _check(name, part)

    def copy(self, rank: int) -> Dict[str, Any]:
        """The state here and now, apart from the objects."""
        state: Dict[str, Any] = {"own": {}, "rng": _rng()}
        if rank == 0:
            state["shared"] = {}
        for name, part in self._objects.items():
            if not _is_shared(name, part):
                state["own"][name] = _copied(part.state_dict())
            elif rank == 0:
                state["shared"][name] = _copied(part.state_dict())
        if _cuda_is_used():
            torch.cuda.current_stream().synchronize()  # copies to pinned memory are under way until then
        return state

    def put_back(self, shared: Mapping[str, Any], own: Mapping[str, Any]) -> List[str]:
        """Loads what there is; the names that the checkpoint does not have. Raises Refused where a state does not fit."""
        lacking = []
        for name, part in self._objects.items():
            state = (shared if _is_shared(name, part) else own).get(name)
            if state is None:
                lacking.append(name)
                continue
            try:
                part.load_state_dict(state)
            except Exception as error:
                # What a user's own object raises is not ours to know.
                raise Refused(
                    f"The checkpoint does not fit {name}: {error}. Give the run the objects that it was saved with, or "
                    "another folder to begin anew."
                ) from error
        return lacking


def read(file: BinaryIO) -> Dict[str, Any]:
    """A rank's file. Nothing in it is executed. Raises Damaged."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:
        # torch raises what it meets: RuntimeError, UnpicklingError, EOFError, KeyError and others.
        raise Damaged(
            f"cannot be loaded ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
        ) from error
    if not isinstance(state, dict) or not {"own", "rng"} <= set(state):
        raise Damaged("has no state of a run")
    return state


def write(state: Dict[str, Any], file: BinaryIO) -> None:
    """A rank's file, for `read`."""
    torch.save(state, file)


def put_rng_back(rng: Mapping[str, Any]) -> None:
    """As `copy` found it."""
    torch.set_rng_state(rng["torch"])
    version, numbers, gauss = rng["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "numpy" in rng:
        import numpy as np

        kind, keys, position, has_gauss, cached = rng["numpy"]
        np.random.set_state((kind, keys.numpy().astype("uint32"), position, has_gauss, cached))
    if "cuda" in rng and torch.cuda.is_available():
        torch.cuda.set_rng_state(rng["cuda"])


def derive_rng(seed: int, step: int, rank: int) -> None:
    """For a rank that the checkpoint has none of: another stream than any rank's that it has, and the same one every time."""
    derived = random.Random(f"{seed} {step} {rank}").getrandbits(62)  # noqa: S311 - seeds, no secrets
    torch.manual_seed(derived)
    random.seed(derived)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(derived % (1 << 32))


def _cuda_is_used() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call,unused-ignore]


def _rng() -> Dict[str, Any]:
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


def _unwrapped(given: Any) -> Any:
    """Without what only changes how it runs: a checkpoint of DDP's or of torch.compile's loads where there is neither."""
    while True:
        if type(given).__name__ in ("DistributedDataParallel", "DataParallel"):
            given = given.module
        elif type(given).__name__ == "OptimizedModule":
            given = given._orig_mod
        else:
            return given


def _is_shared(name: str, part: Any) -> bool:
    return name.split(".", maxsplit=1)[0] in _SHARED_NAMES or isinstance(part, (torch.nn.Module, torch.optim.Optimizer))


def _check(name: str, part: Any) -> None:
    """Raises Refused now, rather than when the checkpoint is needed."""
    if not callable(getattr(part, "state_dict", None)) or not callable(getattr(part, "load_state_dict", None)):
        raise Refused(f"{name} has no state_dict and load_state_dict. Leave it out, or give it both.")
    if isinstance(part, torch.nn.Module):
        _check_whole(name, part)
    buffer = io.BytesIO()
    try:
        torch.save(_hollow(part.state_dict()), buffer)
        buffer.seek(0)
        torch.load(buffer, map_location="cpu", weights_only=True)
    except Exception as error:
        # What a user's own object raises is not ours to know.
        raise Refused(
            f"The state of {name} cannot be read back without executing code ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}). Give it a state_dict of tensors, numbers, text, lists and dicts."
        ) from error


def _check_whole(name: str, module: torch.nn.Module) -> None:
    kinds = {type(each).__name__ for each in module.modules()} | {type(each).__name__ for each in module.parameters()}
    if any(kind.startswith("FSDP") or kind in ("FullyShardedDataParallel", "DTensor") for kind in kinds):
        raise Refused(
            f"{name} is sharded over ranks (FSDP or DTensor), which headway_job.checkpoint does not save. Use "
            "torch.distributed.checkpoint in the script."
        )


def _copied(value: Any) -> Any:
    """The same without a tensor in common; tensors on the CPU, from a GPU by way of pinned memory."""
    if isinstance(value, torch.Tensor):
        if type(value).__name__ == "DTensor":
            raise Refused("A tensor is sharded over ranks (DTensor), which headway_job.checkpoint does not save.")
        value = value.detach()
        if not value.is_cuda:
            return value.to("cpu", copy=True)
        pinned = torch.empty(value.shape, dtype=value.dtype, device="cpu", pin_memory=True)
        return pinned.copy_(value, non_blocking=True)
    return _rebuilt(value, _copied)


def _hollow(value: Any) -> Any:
    """The same with next to nothing in place of its tensors."""
    if isinstance(value, torch.Tensor):
        return torch.zeros(_TOO_SMALL, dtype=value.dtype, device="cpu")
    return _rebuilt(value, _hollow)


def _rebuilt(value: Any, each: Any) -> Any:
    kind = type(value)
    if isinstance(value, dict):
        pairs: List[Tuple[Any, Any]] = [(key, each(of)) for key, of in value.items()]
        return dict(pairs) if kind.__name__ in ("dict", "OrderedDict") else _like(value, pairs)
    if kind in (list, tuple, set):
        return kind(each(one) for one in value)
    return value


def _like(value: Any, pairs: List[Tuple[Any, Any]]) -> Any:
    copy = value.copy()
    copy.update(pairs)
    return copy
