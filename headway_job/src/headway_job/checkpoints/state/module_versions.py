"""Versions of modules, which torch keeps beside a model's tensors: the attribute `_metadata` of a state dict.

A module compares its version with the saved one when it is loaded: it then converts a state of an earlier version, or refuses one
without a version. A copy of a dict has no such attribute, so the versions are saved separately, for each state dict within an
object's state.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, List, Optional, Tuple

import torch

Path = Tuple[Any, ...]
Versions = List[Tuple[Path, Dict[str, Dict[str, Any]]]]
"""For each state dict in a state: the path to it, and what torch says of each module, by the module's name."""

KEY = "module_versions"
"""Key of the versions in a rank's file, by name of the object. Earlier versions of this package ignore it, and do not write it."""
_MAX_MODULES = 100_000
"""Modules of one object whose versions are saved, and read. With more of them, the object counts as saved without versions."""
_ASSIGN = "assign_to_params_buffers"
"""Key in `_metadata` that describes a call of load_state_dict, and not the modules."""
_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Parts of names of modules, which torch removes from the names of their tensors."""


def versions_in(state: Any) -> Versions:
    """Return the versions in the state of an object, without reference to it; [] = it has none, or too many."""
    found: Versions = []
    _collect(state, (), found)
    return found if sum(len(modules) for _, modules in found) <= _MAX_MODULES else []


def checked(saved: Any) -> Optional[Versions]:
    """Return the versions of an object that a file contains; None = there are none, or not as they are written."""
    if not isinstance(saved, list) or not saved:
        return None
    for entry in saved:
        if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], tuple):
            return None
        if not _is_path(entry[0]) or not isinstance(entry[1], dict) or _modules(entry[1]) != entry[1]:
            return None
    return saved if sum(len(modules) for _, modules in saved) <= _MAX_MODULES else None


def attached(state: Any, versions: Versions, given: Any) -> Any:
    """Return the state of the object `given`, with the versions where torch looks for them.

    Only the containers on the way to them are copied.
    """
    places = dict(versions)
    if isinstance(given, torch.nn.Module) and () in places:
        places[()] = _renamed(places[()], given)
    return _attached(state, (), places, {path[:length] for path in places for length in range(len(path) + 1)})


def _collect(value: Any, path: Path, found: Versions) -> None:
    if isinstance(value, dict):
        # Not getattr: a user's dict may make an entry for each attribute that is asked for.
        modules = _modules(value.__dict__.get("_metadata")) if isinstance(value, OrderedDict) else {}
        if modules and _is_path(path):
            found.append((path, modules))
        for key, of in value.items():
            _collect(of, (*path, key), found)
    elif type(value) in (list, tuple):
        for place, of in enumerate(value):
            _collect(of, (*path, place), found)


def _modules(metadata: Any) -> Dict[str, Dict[str, Any]]:
    """Return what can be saved of `_metadata`: numbers and text, by the names of modules."""
    if not isinstance(metadata, dict):
        return {}
    return {
        name: {key: of for key, of in facts.items() if type(key) is str and key != _ASSIGN and type(of) in (int, str)}
        for name, facts in metadata.items()
        if type(name) is str and isinstance(facts, dict)
    }


def _is_path(path: Path) -> bool:
    return all(type(step) in (str, int) for step in path)


def _attached(value: Any, path: Path, places: Dict[Path, Any], on_the_way: Any) -> Any:
    if path not in on_the_way:
        return value
    if type(value) in (list, tuple):
        return type(value)(_attached(of, (*path, place), places, on_the_way) for place, of in enumerate(value))
    if type(value) is not dict:
        return value
    pairs = [(key, _attached(of, (*path, key), places, on_the_way)) for key, of in value.items()]
    if path not in places:
        return dict(pairs)
    found: Any = OrderedDict(pairs)
    found._metadata = OrderedDict((name, dict(facts)) for name, facts in places[path].items())
    return found


def _renamed(modules: Dict[str, Dict[str, Any]], model: torch.nn.Module) -> Dict[str, Dict[str, Any]]:
    """Return the versions by the names of this run's modules, which may be wrapped in another way than when they were saved."""
    plain = {_unwrapped(name): facts for name, facts in modules.items()}
    here = [name for name, _ in model.named_modules(remove_duplicate=False)]
    return {
        **modules,
        **{name: plain[_unwrapped(name)] for name in here if name not in modules and _unwrapped(name) in plain},
    }


def _unwrapped(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)
