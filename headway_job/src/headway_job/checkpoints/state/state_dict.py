"""The state of a run: what is copied at a step boundary, and put back."""

from __future__ import annotations

import io
import os
import random
import sys
from typing import Any, BinaryIO, Dict, List, Mapping, Optional

import torch

from ..errors import CheckpointError, Refused
from . import memory
from .dtensor import Part, joined, parts_of, signature, split
from .pytree import copied, has_shard, hollow, unwrapped
from .shards import Piece, Pieces

_SHARED_NAMES = ("model", "optimizer", "scheduler")
_ZIP = b"PK\x03\x04"


class Parts:
    """The objects whose state makes up a checkpoint, by name. Shared ones are equal on all ranks: rank 0's is kept."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        """Raises Refused where one of them cannot be saved and read back."""
        given_by_name: Dict[str, Any] = {}
        for name, given in objects.items():
            if isinstance(given, (list, tuple)):
                given_by_name.update({f"{name}.{place}": unwrapped(one) for place, one in enumerate(given)})
            elif given is not None:
                given_by_name[name] = unwrapped(given)
        for name, given in given_by_name.items():
            _check_methods(name, given)
        self._parts = parts_of(given_by_name)
        for part in self._parts:
            _check_state(part)
        self.signature = signature(self._parts)
        """The same on all ranks whose sharded models have the same tensors; 0 where no model is sharded."""
        self._sharded = any(part.is_sharded for part in self._parts)

    def copy(self, rank: int) -> Dict[str, Any]:
        """The state here and now, apart from the objects. `pieces` are there if and only if something is sharded.

        Raises MemoryError, rather than have the job killed, where it leaves no room for a copy.

        FSDP1's states are made by all ranks together, so a rank of which a part raises takes part in those to the end.
        """
        state: Dict[str, Any] = {"own": {}, "rng": _rng()}
        room = memory.Room(memory.left_bytes(memory.ranks_here(os.environ) if self._sharded else 1))
        pieces: List[Piece] = []
        shared = {}
        trouble: Optional[Exception] = None
        for part in self._parts:
            if trouble is not None and part.flat_in is None:
                continue
            try:
                if not _is_shared(part):
                    state["own"][part.name] = copied(part.state(), room)
                elif rank == 0 or self._sharded:
                    shared[part.name] = split(part, part.state(), pieces, room, keep=rank == 0)
            except Exception as error:
                # What a user's own object raises is not ours to know.
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        if rank == 0:
            state["shared"] = shared
        if self._sharded:
            state["pieces"] = pieces
        return state

    def fit(self, shared: Mapping[str, Any], own: Mapping[str, Any], pieces: Optional[Pieces]) -> Dict[str, Any]:
        """By name, what `put_back` loads. Raises Refused where a state does not fit, Damaged, and what the store raises.

        As with `copy`, after a part that raises those that all ranks take part in are gone through all the same.
        """
        found = {}
        trouble: Optional[Exception] = None
        for part in self._parts:
            state = (shared if _is_shared(part) else own).get(part.name)
            if state is None or (trouble is not None and part.flat_in is None):
                continue
            try:
                found[part.name] = joined(part, state, pieces) if _is_shared(part) else state
            except Refused as error:
                trouble = trouble or _caused(_does_not_fit(part.name, error), error)
            except Exception as error:
                # Damaged, or what the store raises.
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        return found

    def put_back(self, fitted: Mapping[str, Any]) -> List[str]:
        """Loads what there is; the names that the checkpoint does not have. Raises Refused where a state does not fit.

        After a part that raises the others are loaded all the same: ranks load FSDP1's together.
        """
        lacking = []
        trouble: Optional[Refused] = None
        for part in self._parts:
            if part.name not in fitted:
                lacking.append(part.name)
                continue
            try:
                part.load(fitted[part.name])
            except Exception as error:
                # What a user's own object raises is not ours to know.
                trouble = trouble or _caused(_does_not_fit(part.name, error), error)
        if trouble is not None:
            raise trouble
        return lacking


def read(file: BinaryIO) -> Dict[str, Any]:
    """Load a rank's file, whose digest has been checked. Raises ValueError where it has no state, and whatever torch raises.

    torch.save writes zip files. The older kinds of file are refused before torch sees them: torch <= 2.5.1 can be made to
    execute code by one of them, `weights_only` or not (CVE-2025-32434).
    """
    begin = file.read(len(_ZIP))
    file.seek(0)
    if begin != _ZIP:
        raise ValueError("it is no zip file, as torch.save writes them")
    state = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or not {"own", "rng"} <= set(state):
        raise ValueError("it has no state of a run")
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


def _is_shared(part: Part) -> bool:
    known = part.name.split(".", maxsplit=1)[0] in _SHARED_NAMES
    return known or isinstance(part.given, (torch.nn.Module, torch.optim.Optimizer))


def _check_methods(name: str, given: Any) -> None:
    if not callable(getattr(given, "state_dict", None)) or not callable(getattr(given, "load_state_dict", None)):
        raise Refused(f"{name} has no state_dict and load_state_dict. Leave it out, or give it both.")


def _check_state(part: Part) -> None:
    """Raises Refused now, rather than when the checkpoint is needed."""
    buffer = io.BytesIO()
    try:
        torch.save(hollow(part.state_to_try()), buffer)
        buffer.seek(0)
        torch.load(buffer, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except Exception as error:
        # What a user's own object raises is not ours to know.
        raise Refused(
            f"The state of {part.name} cannot be read back without executing code ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}). Give it a state_dict of tensors, numbers, text, lists and dicts."
        ) from error
    if part.is_sharded:
        split(part, part.state_to_try(), [], memory.Room(None), keep=False)  # how its tensors are placed
    elif has_shard(part.state_to_try()):
        raise Refused(
            f"{part.name} has a tensor that is sharded over ranks, which headway_job.checkpoint saves for models and optimizers "
            "only: make it a torch.nn.Module, or leave it out."
        )


def _caused(refused: Refused, error: Exception) -> Refused:
    """For raising later."""
    refused.__cause__ = error
    return refused


def _does_not_fit(name: str, error: Exception) -> Refused:
    return Refused(
        f"The checkpoint does not fit {name}: {error}. Give the run the objects that it was saved with, or another folder to begin "
        "anew."
    )
