"""Models and optimizers that are sharded over ranks: what this rank has of them, and how it is loaded again.

There are two kinds. DTensors (fully_shard, tensor parallelism) are described by their placements, and keep the names and the order
that the model has without sharding: their checkpoints and whole ones can be restored into each other. For the flat parameters of
FullyShardedDataParallel (FSDP1), torch.distributed.checkpoint.state_dict is used, which names an optimizer's state by parameter.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from ..errors import Refused
from .memory import MemoryBudget
from .pytree import Path, copy_leaf, is_shard, is_torch_type, map_leaves, state_bytes, value_at
from .shards import ReadRequest, Shard, ShardReader, StoredShard

_PLACEHOLDER = "headway-shard"
"""Key of the dict that stands in the tree for a tensor whose values are in the shards."""
_FLAT_ATTRIBUTES = ("_fsdp_flattened", "_is_flat_param")
"""Attributes that FSDP1 sets on parameters that it has flattened or created. Newer versions lose the class of the latter."""


class StatefulObject(NamedTuple):
    """A model or an optimizer, or another object with a state."""

    name: str
    given: Any
    fsdp1_model: Optional[torch.nn.Module] = None
    """With FSDP1 only: the model; for the model itself, the same object."""

    def state(self) -> Any:
        """Return its state dict, with the shards in it; on all ranks."""
        if self.fsdp1_model is None:
            return self.given.state_dict()
        from torch.distributed.checkpoint import state_dict

        return (
            state_dict.get_model_state_dict(self.given)
            if self._is_model
            else state_dict.get_optimizer_state_dict(self.fsdp1_model, self.given)
        )

    def test_state(self) -> Any:
        """Return the same, but without the optimizer's first step, which torch needs to name the state of FSDP1's optimizers."""
        return self.state() if self._is_model else self.given.state_dict()

    def load(self, state: Any) -> None:
        """Load a state that `join_shards` returned; on all ranks."""
        if self.fsdp1_model is None:
            self.given.load_state_dict(state)
            return
        from torch.distributed.checkpoint import state_dict

        if self._is_model:
            state_dict.set_model_state_dict(self.given, state)
        else:
            state_dict.set_optimizer_state_dict(self.fsdp1_model, self.given, optim_state_dict=state)

    def target(self, path: Path, template: Any) -> Any:
        """Return the sharded tensor of this run into which the tensor at a path is loaded, or None. `template`: from `template`."""
        if template is not None:
            found = value_at(template, path)
            return found if is_shard(found) else None
        sharded = _sharded_parameters(self.given)
        return sharded[path[1]] if len(path) > 2 and path[0] == "state" and path[1] in sharded else None

    def template(self) -> Any:
        """Return a state dict with this run's shapes; None for optimizers of DTensors, whose state is like the parameters."""
        return None if isinstance(self.given, torch.optim.Optimizer) and self.fsdp1_model is None else self.state()

    @property
    def is_sharded(self) -> bool:
        """True if each rank has a part of it."""
        if self.fsdp1_model is not None:
            return True
        if isinstance(self.given, torch.nn.Module):
            return any(is_shard(one) for one in (*self.given.parameters(), *self.given.buffers()))
        return isinstance(self.given, torch.optim.Optimizer) and bool(_sharded_parameters(self.given))

    @property
    def _is_model(self) -> bool:
        return isinstance(self.given, torch.nn.Module)


def stateful_objects(objects: Dict[str, Any]) -> List[StatefulObject]:
    """Return the objects, FSDP1's optimizers with their model. Raises Refused if it was not given, or torch is too old."""
    fsdp1_models = [given for given in objects.values() if isinstance(given, torch.nn.Module) and _has_fsdp1(given)]
    found = []
    for name, given in objects.items():
        model: Optional[torch.nn.Module] = given if any(given is one for one in fsdp1_models) else None
        if isinstance(given, torch.optim.Optimizer):
            model = _model_of(name, given, fsdp1_models)
        found.append(StatefulObject(name, given, model))
    if any(each.fsdp1_model is not None for each in found):
        try:
            from torch.distributed.checkpoint import state_dict  # noqa: F401
        except ImportError as error:
            raise Refused(
                f"FullyShardedDataParallel can be saved with torch 2.2 or later; this is torch {torch.__version__}. Use a later "
                "torch, or leave the model out."
            ) from error
    return found


def split_shards(
    each: StatefulObject, state: Any, shards: List[Shard], budget: MemoryBudget, *, here: int = 1, keep: bool
) -> Any:
    """Return a copy of the state with placeholders in place of sharded tensors, and add this rank's shards of them to `shards`.

    `here`: number of ranks that copy such shards out of the same budget at the same time. `keep`: this rank also keeps the rest of
    the state, which it alone copies; otherwise the result is not used.
    """
    shard_budget = budget.for_each_of(here)

    def leaf(path: Path, value: Any) -> Any:
        if not is_shard(value):
            return copy_leaf(value, budget, (each.name, *path)) if keep else None
        name = _name(each.name, path)
        _check_like_parameter(each, path, value, name)
        for offsets, data in local_shards(value, name):
            shards.append(
                Shard(
                    name,
                    tuple(value.shape),
                    offsets,
                    copy_leaf(data.detach().contiguous(), shard_budget, (each.name, *path)),
                )
            )
        return {_PLACEHOLDER: name, "shape": list(value.shape), "dtype": str(value.dtype).split(".")[-1]}

    return map_leaves(state, leaf)


def join_shards(each: StatefulObject, saved: Any, shards: Optional[ShardReader], budget: MemoryBudget) -> Any:
    """Return the state that `split_shards` has split, sharded as in this run; on all ranks.

    Raises Refused if it does not fit, Damaged, MemoryError if whole tensors exceed the budget, and the store's errors.
    """
    _check_keys(each, saved)
    if shards is None and not each.is_sharded:
        return saved
    template = each.template()
    requests: List[ReadRequest] = []

    def leaf(path: Path, value: Any) -> Any:
        if not _is_placeholder(value) and not isinstance(value, torch.Tensor):
            return value
        return _join_leaf(each, path, value, template, requests, budget)

    with torch.no_grad():
        state = map_leaves(saved, leaf, stop=_is_placeholder)
        if requests:
            assert shards is not None, "only checkpoints with shards have placeholders"
            shards.fill(requests)
    return state


def _join_leaf(
    each: StatefulObject, path: Path, value: Any, template: Any, requests: List[ReadRequest], budget: MemoryBudget
) -> Any:
    """Return the tensor of this run for a saved tensor or placeholder. For a placeholder, add requests that fill it."""
    absent = _is_placeholder(value)
    shape = tuple(value["shape"] if absent else value.shape)
    target = each.target(path, template)
    if target is None or (not absent and template is None and tuple(target.shape) != shape):
        return _whole(value, shape, requests, budget) if absent else value
    if tuple(target.shape) != shape:
        raise Refused(
            f"{_name(each.name, path)} has the shape {tuple(target.shape)} here, and was saved with {shape}. Build the model as "
            "the run that saved the checkpoint did, or give headway_job.checkpoint another folder."
        )
    mine = target if template is not None else _empty_like(target, value, absent)
    for offsets, into in local_shards(mine, _name(each.name, path), all_replicas=True):
        if absent:
            requests.append(ReadRequest(value[_PLACEHOLDER], offsets, into))
        else:
            into.copy_(value[tuple(slice(start, start + size) for start, size in zip(offsets, into.shape))])
    return mine


class Signature(NamedTuple):
    """The tensors of the objects with one name, as they are compared over ranks."""

    kind: int
    number: int = 0
    """The same for the same names and shapes of tensors; 0 = there is no object. In a list with shared objects, of these alone."""
    sharded: bool = False
    others: int = 0
    """The same number for the other objects in a list with shared ones; 0 = there are none."""
    own_bytes: int = 0
    """Memory for a copy of those objects that each rank saves by itself."""


ABSENT, OWN, SHARED = 0, 1, 2
"""Kinds of signatures: there is no object; each rank saves its own; rank 0's is saved for all."""


def signature(shared: List[StatefulObject], own: List[StatefulObject]) -> Signature:
    """Return the signature of the objects with one name; on all ranks. `own`: those that each rank saves by itself."""
    if not shared and not own:
        return Signature(ABSENT)
    own_bytes = sum(state_bytes(each.state()) for each in own)
    if not shared:
        return Signature(OWN, _number(own), own_bytes=own_bytes)
    sharded = any(each.is_sharded for each in shared)
    return Signature(SHARED, _number(shared), sharded, _number(own) if own else 0, own_bytes)


def _number(objects: List[StatefulObject]) -> int:
    rows = [row for each in objects for row in _rows(each)]
    digest = hashlib.sha256(json.dumps(sorted(rows)).encode()).digest()
    return int.from_bytes(digest[:7], "big") + 1


def local_shards(value: Any, name: str, *, all_replicas: bool = False) -> List[Tuple[Tuple[int, ...], torch.Tensor]]:
    """Return offsets and values of this rank's part of a sharded tensor. Without `all_replicas`, only the first replica has one."""
    if is_torch_type(value, "ShardedTensor"):
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
                f"{name} has the placement {placement}, which headway_job.checkpoint does not save. Shard a dimension of a tensor "
                "only once, or use torch.distributed.checkpoint in the script."
            )
    local = value.to_local()
    if tuple(local.shape) != tuple(sizes):
        raise Refused(f"{name} has the shape {tuple(local.shape)} on this rank, where {tuple(sizes)} was expected.")
    return [(tuple(offsets), local)] if (first or all_replicas) and local.numel() else []


def shards_from(files: Dict[str, List[StoredShard]], open_file: Any) -> ShardReader:
    """Return a reader of the shards in all ranks' files."""
    return ShardReader((stored for name in sorted(files) for stored in files[name]), open_file)


def _has_fsdp1(module: torch.nn.Module) -> bool:
    return any(is_torch_type(each, "FullyShardedDataParallel") for each in module.modules())


def _model_of(
    name: str, optimizer: torch.optim.Optimizer, fsdp1_models: List[torch.nn.Module]
) -> Optional[torch.nn.Module]:
    own = [one for group in optimizer.param_groups for one in group["params"]]
    for model in fsdp1_models:
        parameters = {id(one) for one in model.parameters()}
        if any(id(one) in parameters for one in own):
            return model
    if any(is_torch_type(one, "FlatParameter") or any(hasattr(one, name) for name in _FLAT_ATTRIBUTES) for one in own):
        raise Refused(
            f"{name} belongs to a FullyShardedDataParallel model that was not given. Give it too, as model=..."
        )
    return None


def _sharded_parameters(optimizer: torch.optim.Optimizer) -> Dict[int, Any]:
    """Return the sharded parameters, by their numbers in the optimizer's state."""
    every = (one for group in optimizer.param_groups for one in group["params"])
    return {place: one for place, one in enumerate(every) if is_shard(one)}


def _check_keys(each: StatefulObject, saved: Any) -> None:
    """Raise Refused if the keys of an optimizer's state do not fit: FSDP1 has names of parameters, everything else numbers."""
    if not isinstance(each.given, torch.optim.Optimizer) or not isinstance(saved, dict):
        return
    named = any(isinstance(one, str) for group in saved.get("param_groups", []) for one in group.get("params", []))
    if named != (each.fsdp1_model is not None):
        were, now = "with" if named else "without", "without" if named else "with"
        raise Refused(
            f"it was saved {were} FullyShardedDataParallel, and this run is {now}. Restore it as it was saved: an optimizer's "
            "state cannot be converted between the two"
        )


def _check_like_parameter(each: StatefulObject, path: Path, value: Any, name: str) -> None:
    """Raise Refused if a sharded tensor of an optimizer differs in shape from its parameter, as which it would be loaded."""
    if each.fsdp1_model is None and isinstance(each.given, torch.optim.Optimizer):
        parameter = each.target(path, None)
        if parameter is None or parameter.shape != value.shape:
            raise Refused(
                f"{name} is sharded, but does not have the shape of its parameter. headway_job.checkpoint cannot save this: "
                "use torch.distributed.checkpoint in the script, or another optimizer."
            )


def _empty_like(target: Any, value: Any, absent: bool) -> Any:
    dtype = getattr(torch, value["dtype"]) if absent else value.dtype
    return torch.empty_like(target, dtype=dtype, requires_grad=False)


def _whole(
    placeholder: Dict[str, Any], shape: Tuple[int, ...], requests: List[ReadRequest], budget: MemoryBudget
) -> torch.Tensor:
    """Return the whole tensor, for a run in which it is not sharded, and add the request that fills it. Raises MemoryError."""
    dtype = getattr(torch, placeholder["dtype"])
    budget.take(math.prod(shape) * torch.empty((), dtype=dtype).element_size())
    into = torch.empty(shape, dtype=dtype, device="cpu")
    if into.numel():
        requests.append(ReadRequest(placeholder[_PLACEHOLDER], (0,) * len(shape), into))
    return into


def _is_placeholder(value: Any) -> bool:
    return isinstance(value, dict) and _PLACEHOLDER in value


def _name(owner: str, path: Path) -> str:
    """Return the name of a tensor, which no other tensor of the run has."""
    return json.dumps([owner, *(step if isinstance(step, (str, int)) else repr(step) for step in path)])


def _rows(each: StatefulObject) -> List[Any]:
    """Return the tensors of an object that have to be equal on all ranks.

    Of an optimizer, its parameters, as it has no other tensors before a step. Of an object that each rank saves by itself, those of
    floating-point numbers: others, such as the rows of a loader, may differ.
    """
    rows: List[Any] = [[each.name, str(each.is_sharded)]]
    if isinstance(each.given, torch.optim.Optimizer):
        for place, group in enumerate(each.given.param_groups if each.fsdp1_model is None else ()):
            rows += [_row(each.name, (place, number), one) for number, one in enumerate(group["params"])]
        return rows

    def leaf(path: Path, value: Any) -> None:
        if isinstance(each.given, torch.nn.Module) or (isinstance(value, torch.Tensor) and value.is_floating_point()):
            rows.append(_row(each.name, path, value))

    map_leaves(each.state(), leaf)
    return rows


def _row(owner: str, path: Path, leaf: Any) -> List[Any]:
    known = isinstance(leaf, torch.Tensor) and not is_torch_type(leaf, "UninitializedTensorMixin")  # of a lazy module
    shape = list(leaf.shape) if known else None
    return [_name(owner, path), json.dumps([shape, is_shard(leaf)])]
