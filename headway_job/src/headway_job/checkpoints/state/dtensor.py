"""Models and optimizers that are sharded over ranks: what this rank has of them, and how it is put back.

Two kinds. DTensors (fully_shard, tensor parallelism) are told by their own placements, and keep the names and the order that the
model has unsharded: their checkpoints and whole ones can be restored into each other. FullyShardedDataParallel's flat parameters
are left to torch.distributed.checkpoint.state_dict, which names an optimizer's state by parameter.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from ..errors import Refused
from .memory import Room
from .pytree import Path, at, copied_leaf, is_a, is_shard, rebuilt
from .shards import Kept, Piece, Pieces, Request

_MARK = "headway-shard"
"""The key of what stands in the tree for a tensor whose numbers are in the pieces."""
_FLAT_MARKS = ("_fsdp_flattened", "_is_flat_param")
"""What FSDP1 sets on parameters that it has flattened, or made: the class that it makes them of is lost, in newer versions."""


class Part(NamedTuple):
    """A model or an optimizer, or any other object with a state."""

    name: str
    given: Any
    flat_in: Optional[torch.nn.Module] = None
    """FSDP1 only: the model; for the model itself, itself."""

    def state(self) -> Any:
        """Its state dict with the shards in it. On all ranks alike."""
        if self.flat_in is None:
            return self.given.state_dict()
        from torch.distributed.checkpoint import state_dict as of

        return (
            of.get_model_state_dict(self.given)
            if self._is_model
            else of.get_optimizer_state_dict(self.flat_in, self.given)
        )

    def state_to_try(self) -> Any:
        """The same without an optimizer's first step, which torch needs to name the state of FSDP1's."""
        return self.state() if self._is_model else self.given.state_dict()

    def load(self, state: Any) -> None:
        """What `targets` and the checkpoint made of it. On all ranks alike."""
        if self.flat_in is None:
            self.given.load_state_dict(state)
            return
        from torch.distributed.checkpoint import state_dict as of

        if self._is_model:
            of.set_model_state_dict(self.given, state)
        else:
            of.set_optimizer_state_dict(self.flat_in, self.given, optim_state_dict=state)

    def target(self, path: Path, template: Any) -> Any:
        """The shards of this run to which the tensor there belongs, or None. `template`: of `template`."""
        if template is not None:
            found = at(template, path)
            return found if is_shard(found) else None
        places = _parameters(self.given)
        return places[path[1]] if len(path) > 2 and path[0] == "state" and path[1] in places else None

    def template(self) -> Any:
        """A state dict of this run's shape. None for optimizers of DTensors: their state is like the parameters."""
        return None if isinstance(self.given, torch.optim.Optimizer) and self.flat_in is None else self.state()

    @property
    def is_sharded(self) -> bool:
        """Whether its ranks have a part of it each."""
        if self.flat_in is not None:
            return True
        if isinstance(self.given, torch.nn.Module):
            return any(is_shard(one) for one in (*self.given.parameters(), *self.given.buffers()))
        return isinstance(self.given, torch.optim.Optimizer) and bool(_parameters(self.given))

    @property
    def _is_model(self) -> bool:
        return isinstance(self.given, torch.nn.Module)


def parts_of(objects: Dict[str, Any]) -> List[Part]:
    """With the model of each of FSDP1's optimizers. Raises Refused where it is not given, or torch is too old."""
    flat = [given for given in objects.values() if isinstance(given, torch.nn.Module) and _has_flat(given)]
    parts = []
    for name, given in objects.items():
        home: Optional[torch.nn.Module] = given if any(given is model for model in flat) else None
        if isinstance(given, torch.optim.Optimizer):
            home = _home(name, given, flat)
        parts.append(Part(name, given, home))
    if any(part.flat_in is not None for part in parts):
        try:
            from torch.distributed.checkpoint import state_dict  # noqa: F401
        except ImportError as error:
            raise Refused(
                f"FullyShardedDataParallel can be saved with torch 2.2 or later; this is torch {torch.__version__}."
            ) from error
    return parts


def split(part: Part, state: Any, pieces: List[Piece], room: Room, *, keep: bool) -> Any:
    """A copy of the state, in which marks stand for shards; this rank's pieces of them are added to `pieces`.

    `keep`: whether this rank keeps the rest of the state too; otherwise the result is of no use.
    """

    def leaf(path: Path, value: Any) -> Any:
        if not is_shard(value):
            return copied_leaf(value, room) if keep else None
        name = _name(part.name, path)
        _check_like_parameter(part, path, value, name)
        for offsets, data in held(value, name):
            pieces.append(Piece(name, tuple(value.shape), offsets, copied_leaf(data.detach().contiguous(), room)))
        return {_MARK: name, "shape": list(value.shape), "dtype": str(value.dtype).split(".")[-1]}

    return rebuilt(state, leaf)


def joined(part: Part, saved: Any, pieces: Optional[Pieces]) -> Any:
    """The state that `split` took apart, in the shards of this run. Raises Refused where it does not fit; Damaged.

    On all ranks alike. What the store raises is passed on.
    """
    _check_keys(part, saved)
    if pieces is None and not part.is_sharded:
        return saved
    template = part.template()
    requests: List[Request] = []

    def leaf(path: Path, value: Any) -> Any:
        marked = _is_mark(value)
        if not marked and not isinstance(value, torch.Tensor):
            return value
        shape = tuple(value["shape"] if marked else value.shape)
        target = part.target(path, template)
        if target is None or (not marked and template is None and tuple(target.shape) != shape):
            return _whole(value, shape, requests) if marked else value
        if tuple(target.shape) != shape:
            raise Refused(
                f"{_name(part.name, path)} is of the shape {tuple(target.shape)} here, and was saved with {shape}"
            )
        mine = _like(target, value, marked, in_place=template is not None)
        for offsets, into in held(mine, _name(part.name, path), all_replicas=True):
            if marked:
                requests.append(Request(value[_MARK], offsets, into))
            else:
                into.copy_(value[tuple(slice(start, start + size) for start, size in zip(offsets, into.shape))])
        return mine

    with torch.no_grad():
        state = rebuilt(saved, leaf, stop=_is_mark)
        if requests:
            assert pieces is not None, "marks are in checkpoints with pieces only"
            pieces.fill(requests)
    return state


def signature(parts: List[Part]) -> int:
    """The same on all ranks whose sharded models have the same tensors; 0 where there are none."""
    rows: List[Any] = []
    for part in parts:
        if part.is_sharded and isinstance(part.given, torch.nn.Module):
            rebuilt(part.state(), lambda path, leaf, name=part.name: rows.append(_row(name, path, leaf)))  # type: ignore[misc]
    if not rows:
        return 0
    return int.from_bytes(hashlib.sha256(json.dumps(sorted(rows)).encode()).digest()[:7], "big") + 1


def held(value: Any, name: str, *, all_replicas: bool = False) -> List[Tuple[Tuple[int, ...], torch.Tensor]]:
    """What this rank has of a sharded tensor: offsets and numbers. Of replicas the first one only, where not `all_replicas`."""
    if is_a(value, "ShardedTensor"):
        return [(tuple(shard.metadata.shard_offsets), shard.tensor) for shard in value.local_shards()]
    coordinate = value.device_mesh.get_coordinate()
    if coordinate is None:
        return []
    sizes, offsets, first = list(value.shape), [0] * value.dim(), True
    for dimension, placement in enumerate(value.placements):
        if placement.is_replicate():
            first = first and coordinate[dimension] == 0
        elif type(placement).__name__ == "Shard":
            most = -(-sizes[placement.dim] // value.device_mesh.size(dimension))
            start = min(most * coordinate[dimension], sizes[placement.dim])
            offsets[placement.dim] += start
            sizes[placement.dim] = min(most, sizes[placement.dim] - start)
        else:
            raise Refused(
                f"{name} is placed as {placement}, which headway_job.checkpoint does not save. Shard a dimension of a tensor once "
                "only, or use torch.distributed.checkpoint in the script."
            )
    local = value.to_local()
    if tuple(local.shape) != tuple(sizes):
        raise Refused(f"{name} is {tuple(local.shape)} large on this rank, where {tuple(sizes)} was expected.")
    return [(tuple(offsets), local)] if (first or all_replicas) and local.numel() else []


def pieces_from(files: Dict[str, List[Kept]], opened: Any) -> Pieces:
    """Of all ranks' files."""
    return Pieces((kept for name in sorted(files) for kept in files[name]), opened)


def _has_flat(module: torch.nn.Module) -> bool:
    return any(is_a(each, "FullyShardedDataParallel") for each in module.modules())


def _home(name: str, optimizer: torch.optim.Optimizer, flat: List[torch.nn.Module]) -> Optional[torch.nn.Module]:
    own = [one for group in optimizer.param_groups for one in group["params"]]
    for model in flat:
        parameters = {id(one) for one in model.parameters()}
        if any(id(one) in parameters for one in own):
            return model
    if any(is_a(one, "FlatParameter") or any(hasattr(one, mark) for mark in _FLAT_MARKS) for one in own):
        raise Refused(
            f"{name} belongs to a FullyShardedDataParallel model that was not given. Give it too, as model=..."
        )
    return None


def _parameters(optimizer: torch.optim.Optimizer) -> Dict[int, Any]:
    """Those that are sharded, by the number that the optimizer's state has for them."""
    every = (one for group in optimizer.param_groups for one in group["params"])
    return {place: one for place, one in enumerate(every) if is_shard(one)}


def _check_keys(part: Part, saved: Any) -> None:
    """An optimizer's state is by name from FSDP1, and by number from everything else. Raises Refused."""
    if not isinstance(part.given, torch.optim.Optimizer):
        return
    named = any(isinstance(one, str) for group in saved.get("param_groups", []) for one in group.get("params", []))
    if named != (part.flat_in is not None):
        were, now = "with" if named else "without", "without" if named else "with"
        raise Refused(
            f"it was saved {were} FullyShardedDataParallel, and this run is {now}. Restore it as it was saved: optimizers cannot "
            "be taken over between the two"
        )


def _check_like_parameter(part: Part, path: Path, value: Any, name: str) -> None:
    """What is put back is sharded as its parameter is. Raises Refused."""
    if part.flat_in is None and isinstance(part.given, torch.optim.Optimizer):
        parameter = part.target(path, None)
        if parameter is None or parameter.shape != value.shape:
            raise Refused(
                f"{name} is sharded, and is not of its parameter's shape, which headway_job.checkpoint does not save."
            )


def _like(target: Any, value: Any, marked: bool, *, in_place: bool) -> Any:
    if in_place:
        return target
    dtype = getattr(torch, value["dtype"]) if marked else value.dtype
    return torch.empty_like(target, dtype=dtype, requires_grad=False)


def _whole(mark: Dict[str, Any], shape: Tuple[int, ...], requests: List[Request]) -> torch.Tensor:
    """For a run in which it is not sharded."""
    into = torch.empty(shape, dtype=getattr(torch, mark["dtype"]), device="cpu")
    if into.numel():
        requests.append(Request(mark[_MARK], (0,) * len(shape), into))
    return into


def _is_mark(value: Any) -> bool:
    return isinstance(value, dict) and _MARK in value


def _name(part: str, path: Path) -> str:
    """No two tensors of a run have the same one."""
    return json.dumps([part, *(step if isinstance(step, (str, int)) else repr(step) for step in path)])


def _row(part: str, path: Path, leaf: Any) -> List[Any]:
    shape = list(leaf.shape) if isinstance(leaf, torch.Tensor) else None
    return [_name(part, path), json.dumps([shape, is_shard(leaf)])]
