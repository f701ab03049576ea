"""The state of a run: copied at a step boundary, written, and loaded again."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Any, BinaryIO, Dict, List, Mapping, NamedTuple, Optional

import torch

from ..errors import CheckpointError, Refused
from . import memory, module_versions, older_file, rng, tensor_file, tree_text
from .dtensor import (
    Signature,
    StatefulObject,
    join_shards,
    signature,
    split_shards,
    stateful_objects,
)
from .pytree import deep_copy, has_shard, unwrap, with_tiny_tensors
from .shards import Shard, ShardReader

_SHARED_NAMES = ("model", "optimizer", "scheduler")
DIVIDED = "divided"
"""Key of these names in rank 0's file. Earlier versions ignore it."""
_OWN_KEYS = ("own", "rng")
"""Keys of what another rank does not need of rank 0's file."""
_FORMAT, _VERSION = "headway_state", "1"


class StatefulObjects:
    """The objects whose state is a checkpoint, by name. Shared ones are equal on all ranks, and rank 0's state is saved."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        """Raises Refused if one of them cannot be saved and read back."""
        by_name: Dict[str, Any] = {}
        for name, given in objects.items():
            if isinstance(given, (list, tuple)):
                by_name.update({f"{name}.{place}": unwrap(one) for place, one in enumerate(given)})
            elif given is not None:
                by_name[name] = unwrap(given)
        for name, given in by_name.items():
            _check_methods(name, given)
        self._objects = stateful_objects(by_name)
        self._versions = {each.name: _check_state(each) for each in self._objects}
        """Name -> the versions of its modules, for checkpoints without versions."""
        self.signatures = {name: self._signature(name) for name in objects}
        """Name -> the tensors of its objects, as they are compared over ranks; also for names without an object."""
        self.divided: List[str] = []
        """Names of objects whose state has other tensors on each rank; set when the ranks were compared. Bound: the objects."""
        self.most_ranks = 1 << 30
        """Number of ranks of the run; set when it is known. A launcher may name more for a node."""
        self.least_own_bytes: Dict[str, int] = {}
        """Name -> the least memory that a rank needs for a copy of its own objects; set when the ranks were compared. Bound: the
        names."""
        self._sharded = any(each.is_sharded for each in self._objects)

    def _signature(self, name: str) -> Signature:
        """Return the signature of the object, or the list of objects, that was given under a name."""
        found = [each for each in self._objects if each.name == name or each.name.startswith(f"{name}.")]
        return signature([each for each in found if _is_shared(each)], [each for each in found if not _is_shared(each)])

    @property
    def names(self) -> Dict[str, bool]:
        """Name -> True if rank 0's state is saved for all ranks."""
        return {each.name: _is_shared(each) for each in self._objects}

    def copy(self, rank: int) -> Dict[str, Any]:
        """Return a copy of the current state, with `pieces` if and only if something is sharded.

        Raises MemoryError if there is not enough memory for a copy, as the job would be killed otherwise.

        All ranks compute FSDP1's states together. So if one object raises, this rank takes part in the others until the end.
        """
        state: Dict[str, Any] = {"own": {}, "rng": rng.capture()}
        here = min(memory.ranks_here(os.environ), self.most_ranks)
        # Each rank of the node copies its own objects and its shards, and rank 0 alone what else is shared.
        budget = memory.MemoryBudget(memory.left_bytes())
        shards: List[Shard] = []
        shared = {}
        versions: Dict[str, module_versions.Versions] = {}
        trouble: Optional[Exception] = None
        # Own objects first: if there is too little memory for all, rank 0 notices it before it copies what is shared.
        for each in sorted(self._objects, key=_is_shared):
            if trouble is not None and each.fsdp1_model is None:
                continue
            try:
                if not _is_shared(each):
                    own_budget = self._own_budget(each, budget, here)
                    state["own"][each.name] = deep_copy(_taken(each, versions), own_budget, (each.name,))
                elif rank == 0 or self._sharded:
                    noted = versions if rank == 0 else {}
                    shared[each.name] = split_shards(
                        each, _taken(each, noted), shards, budget, here=here, keep=rank == 0
                    )
            except Exception as error:
                # A user's own object may raise anything.
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        if rank == 0:
            state["shared"] = shared
            if self.divided:
                state[DIVIDED] = list(self.divided)
        if self._sharded:
            state["pieces"] = shards
        state[module_versions.KEY] = {name: found for name, found in versions.items() if found}
        return state

    def _own_budget(self, each: StatefulObject, budget: memory.MemoryBudget, here: int) -> memory.MemoryBudget:
        """Return the budget for an object that each of `here` ranks saves by itself.

        The others take from it the least that they copy, so that no save is refused which fits.
        """
        name = each.name if each.name in self.signatures else each.name.rsplit(".", maxsplit=1)[0]
        mine_bytes = self.signatures[name].own_bytes
        part = Fraction(self.least_own_bytes.get(name, 0), mine_bytes) if mine_bytes else Fraction(0)
        return budget.for_each_of(here, part)

    def fit(
        self,
        shared: Mapping[str, Any],
        own: Mapping[str, Any],
        shards: Optional[ShardReader],
        budget: memory.MemoryBudget,
        versions: Mapping[str, Any],
    ) -> Dict[str, Any]:
        """Return what `load` needs, by name. Raises Refused if a state does not fit, Damaged, MemoryError, and the store's errors.

        `budget`: for tensors whose parts are joined. `versions`: name -> the versions of its modules, as the file contains them. If
        it contains none, as in checkpoints of earlier versions of this package, the modules' own versions are used.

        As in `copy`, if one object raises, those in which all ranks take part are processed nevertheless.
        """
        found = {}
        trouble: Optional[Exception] = None
        for each in self._objects:
            saved = shared if _is_shared(each) else own
            if each.name not in saved or (trouble is not None and each.fsdp1_model is None):
                continue
            state = saved[each.name]  # None, too, can be the state of a user's object
            try:
                fitted = join_shards(each, state, shards, budget) if _is_shared(each) else state
                known = module_versions.checked(versions.get(each.name))
                known = self._versions[each.name] if known is None else known
                found[each.name] = module_versions.attached(fitted, known, each.given)
            except Refused as error:
                trouble = trouble or _caused(_does_not_fit(each.name, error), error)
            except Exception as error:
                # Damaged, or an error of the store.
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        return found

    def load(self, fitted: Mapping[str, Any]) -> List[str]:
        """Load the state into the objects, and return the names that the checkpoint lacks. Raises Refused if a state does not fit.

        An object that refuses the state None is lacking, too: its state_dict returns nothing. If one object raises, the others are
        loaded nevertheless, as ranks load FSDP1's states together.
        """
        lacking = []
        trouble: Optional[Refused] = None
        for each in self._objects:
            if each.name not in fitted:
                lacking.append(each.name)
                continue
            try:
                each.load(fitted[each.name])
            except Exception as error:
                # A user's own object may raise anything.
                if fitted[each.name] is None:
                    lacking.append(each.name)
                else:
                    trouble = trouble or _caused(_does_not_fit(each.name, error), error)
        if trouble is not None:
            raise trouble
        return lacking


class Encoded(NamedTuple):
    """The state of a rank as it is written."""

    text: str
    tensors: List[torch.Tensor]

    def write(self, file: BinaryIO) -> None:
        """Write a rank's file, for `read`."""
        tensor_file.write({_FORMAT: _VERSION, "state": self.text}, self.tensors, file)


def encode(state: Dict[str, Any]) -> Encoded:
    """Encode the state of a rank. Raises UnsavableError, so that nothing is written which could not be read back."""
    return Encoded(*tree_text.dumps(state, hidden=1))


def read(file: BinaryIO, *, own: bool = True) -> Dict[str, Any]:
    """Load a rank's file, without executing anything in it. Raises ValueError if it has no state, and torch's errors.

    `own`: False = without the tensors of the rank's own objects, for which no memory is used; its own state is then None.
    """
    tensors = _opened(file)
    return _checked(tree_text.loads(tensors.metadata["state"], tensors.read, () if own else _OWN_KEYS))


def shared_bytes(file: BinaryIO) -> int:
    """Return the memory that the tensors need which `read` returns without the rank's own. Raises as it does."""
    parsed = tree_text.parse(_opened(file).metadata["state"], _OWN_KEYS)
    return sum(shape.size_bytes for number, shape in enumerate(parsed.shapes) if number in parsed.wanted)


def _opened(file: BinaryIO) -> tensor_file.TensorFile:
    tensors = tensor_file.TensorFile(file)
    if tensors.metadata.get(_FORMAT) != _VERSION:
        raise ValueError(f"it has version {tensors.metadata.get(_FORMAT)!r}, and this headway_job reads {_VERSION}")
    tensors.metadata["state"] = str(tensors.metadata.get("state"))
    return tensors


def read_older(file: BinaryIO) -> Dict[str, Any]:
    """Load the file of an earlier version, which torch.save has written. As `read`."""
    return _checked(older_file.read(file))


def _checked(state: Any) -> Dict[str, Any]:
    if not isinstance(state, dict) or not {"own", "rng"} <= set(state):
        raise ValueError("it does not contain the state of a run")
    divided = state.get(DIVIDED, [])
    if not isinstance(divided, list) or not all(isinstance(name, str) for name in divided):
        raise ValueError("it names objects in an unknown way")
    return state


def _is_shared(each: StatefulObject) -> bool:
    known = each.name.split(".", maxsplit=1)[0] in _SHARED_NAMES
    return known or isinstance(each.given, (torch.nn.Module, torch.optim.Optimizer))


def _taken(each: StatefulObject, versions: Dict[str, module_versions.Versions]) -> Any:
    """Return the state of an object, and note the versions of its modules. The caller drops it at once: it may be a copy."""
    state = each.state()
    versions[each.name] = module_versions.versions_in(state)
    return state


def _check_methods(name: str, given: Any) -> None:
    if not callable(getattr(given, "state_dict", None)) or not callable(getattr(given, "load_state_dict", None)):
        raise Refused(f"{name} has no state_dict and load_state_dict. Leave it out, or give it both methods.")


def _check_state(each: StatefulObject) -> module_versions.Versions:
    """Return the versions of its modules. Raise Refused now, rather than when the checkpoint is needed."""
    try:
        path = (each.name,)
        state = each.test_state()
        tree_text.dumps(with_tiny_tensors(state, path), path)
        versions = module_versions.versions_in(state)
    except CheckpointError:
        raise
    except Exception as error:
        # A user's own object may raise anything.
        raise Refused(
            f"The state of {each.name} cannot be read back without executing code ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}). Give it a state_dict of tensors, numbers, text, lists and dicts."
        ) from error
    if each.is_sharded:
        split_shards(each, each.test_state(), [], memory.MemoryBudget(None), keep=False)  # checks their placements
    elif has_shard(each.test_state()):
        raise Refused(
            f"{each.name} has a tensor that is sharded over ranks. headway_job.checkpoint saves such tensors for models and "
            "optimizers only: make it a torch.nn.Module, or leave it out."
        )
    return versions


def _caused(refused: Refused, error: Exception) -> Refused:
    """Return it with its cause set, so that it can be raised later."""
    refused.__cause__ = error
    return refused


def _does_not_fit(name: str, error: Exception) -> Refused:
    return Refused(
        f"The checkpoint does not fit {name}: {error}. Give the run the same objects with which it was saved, or another folder "
        "to begin at step 0."
    )
