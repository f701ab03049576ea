"""Rank, process groups and model of this process, read from its environment and from torch. Nothing here raises."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .closing_line import is_wanted
from .step_counter import TensorFacts

HOOK_VERSION = "2"
"""From version 2 on, the bytes of an all-gather in a profile are those of its result; before, those of this rank's part of it.

Hooks that know which collectives stay within the node report that in keys of its own (`link_bytes`, `local_exposed_s`,
`local_hidden_s`). A profile without them is that of an earlier hook, or of a layout that is not known: both are read alike."""
_UNKNOWN = -1
_MAX_GROUPS = 64
_MAX_TEXT_CHARS = 255
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
"""Variables in order of precedence: that of the launcher nearest to the process comes first. SLURM_NTASKS is not among them, as it
is also set in a batch script, which is only one process."""


def hello(device: str, known: Optional[Tuple[int, int]], loaded_ns: int) -> Dict[str, Any]:
    """Return the fields of a hello frame. `device`: that of the parameters, empty = not known. `known`: rank and world size."""
    rank, world_size = known or (_number(_RANK), _number(_WORLD))
    report = {"report": True} if is_wanted(rank) else {}
    return {
        **report,
        "pid": os.getpid(),
        "rank": rank,
        "world_size": world_size,
        "local_rank": _number(_LOCAL),
        "torch": _text(getattr(sys.modules.get("torch"), "__version__", "")),
        "device": "cuda" if device == "cuda" or (not device and _cuda_is_used()) else "cpu",
        "script": _text(os.path.basename(str((getattr(sys, "argv", None) or [""])[0]))),
        "restart": max(_number(("SLURM_RESTART_COUNT",)), 0),
        "job_id": _text(os.environ.get("SLURM_JOB_ID", "")),
        "hook_version": HOOK_VERSION,
        "loaded_ns": loaded_ns,
    }


def model(
    parameters: Sequence[TensorFacts], optimizers: int, groups: List[Dict[str, Any]], batch_size: int = 0
) -> Dict[str, Any]:
    """Return the fields of a model frame. `batch_size`: 0 = not known."""
    digest = hashlib.sha256()
    for shape, dtype in sorted((shape, dtype) for shape, dtype, _, _ in parameters):
        digest.update(f"{'x'.join(map(str, shape))} {dtype}\n".encode())
    return {
        "param_bytes": sum(elements * size for _, _, elements, size in parameters),
        "num_tensors": len(parameters),
        "num_params": sum(elements for _, _, elements, _ in parameters),
        "optimizers": optimizers,
        "groups": groups,
        "signature": digest.hexdigest(),
        "batch_size": batch_size or _UNKNOWN,
    }


def ranks() -> Optional[Tuple[int, int]]:
    """Return rank and world size from torch.distributed; None before it is initialized, and after it was destroyed."""
    try:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
    except Exception:
        # Another thread has destroyed it meanwhile.
        pass
    return None


def groups() -> List[Dict[str, Any]]:
    """Return name, size and backend of the process groups that this process belongs to."""
    found: List[Dict[str, Any]] = []
    try:
        core: Any = sys.modules.get("torch.distributed.distributed_c10d")
        world: Any = getattr(core, "_world", None)  # torch >= 2.0; older versions have names of the module
        members = world.pg_map if world is not None else core._pg_map
        names = world.pg_names if world is not None else core._pg_names
        for group, (backend, _store) in list(members.items())[:_MAX_GROUPS]:
            row = {"name": _text(names.get(group, "")), "size": int(group.size()), "backend": _text(str(backend))}
            found.append(row)
    except Exception:
        # There is no such module, or this version has other names: groups are optional.
        pass
    return found


def own_rank() -> int:
    """Return the rank of this process: that of torch.distributed, else that of its launcher; -1 = it was started without one."""
    known = ranks()
    return known[0] if known is not None else _number(_RANK)


def group_size(known: Sequence[Dict[str, Any]], world: Optional[Tuple[int, int]]) -> int:
    """Return the ranks of the smallest of these groups with more than one, else the world size; 1 = neither is known.

    Collectives whose group is not known are mostly those of tensor parallelism, in the smallest groups of a mesh.
    """
    sizes = [int(group["size"]) for group in known if int(group["size"]) > 1]
    return min(sizes) if sizes else max(world[1] if world is not None else 1, 1)


def _cuda_is_used() -> bool:
    try:
        cuda: Any = sys.modules.get("torch.cuda")
        return bool(cuda is not None and cuda.is_initialized())
    except Exception:
        return False


def _number(names: Sequence[str]) -> int:
    """Return the first of the variables that is a whole number >= 0; -1 = none is."""
    for name in names:
        text = os.environ.get(name, "").strip()
        if text.isascii() and text.isdigit() and len(text) <= 9:
            return int(text)
    return _UNKNOWN


def _text(value: Any) -> str:
    return str(value)[:_MAX_TEXT_CHARS]
