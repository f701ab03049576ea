"""Checkpoints as bytes: nested dicts, lists and tuples of arrays, torch tensors, numbers and texts.

The format is a line with a digest, then a safetensors file whose header says how its arrays are nested. Reading it runs no code.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from policies.documents import parse_json
from policies.errors import TrainingError

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
_PLAIN = (bool, int, float, str)
_MARK = b"headway-point-1"
_LAYOUT = "layout"


def to_bytes(value: object) -> bytes:
    """Return the bytes of a value. Raises TypeError, with its place, for a value that cannot be read back equal."""
    import safetensors.numpy

    arrays: Arrays = {}
    layout = json.dumps(_describe(value, "", arrays))
    content: bytes = safetensors.numpy.save(arrays, {_LAYOUT: layout})
    return b"%s %s\n" % (_MARK, hashlib.sha256(content).hexdigest().encode()) + content


def from_bytes(packed: bytes, where: str) -> Any:
    """Return the value, with tensors on the CPU. Raises TrainingError for bytes that `to_bytes` did not make."""
    import safetensors
    import safetensors.numpy

    line, _, content = packed.partition(b"\n")
    if line != b"%s %s" % (_MARK, hashlib.sha256(content).hexdigest().encode()):
        raise TrainingError(
            f"{where}: damaged, or of another version of Headway; remove the folder of the training and begin again"
        )
    try:
        arrays = safetensors.numpy.load(content)
        length = int.from_bytes(content[:8], "little")
        return _restore(parse_json(parse_json(content[8 : 8 + length])["__metadata__"][_LAYOUT]), arrays)
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise TrainingError(
            f"{where}: not a checkpoint as this Headway writes them ({type(error).__name__}); use the Headway that wrote it, or "
            "remove the folder of the training and begin anew"
        ) from error


def _describe(value: object, place: str, arrays: Arrays) -> object:
    """Return the value as JSON: plain values as they are, all others as a pair of kind and content."""
    if value is None or type(value) in _PLAIN:
        return value
    content: object
    match value:
        case dict():
            kind, content = (
                "dict",
                [[_key(key, place), _describe(one, f"{place}.{key}", arrays)] for key, one in value.items()],
            )
        case list() | tuple():
            kind = "list" if isinstance(value, list) else "tuple"
            content = [_describe(one, f"{place}[{number}]", arrays) for number, one in enumerate(value)]
        case np.ndarray() | np.generic():
            kind = "array" if isinstance(value, np.ndarray) else "scalar"
            content = _store(np.asarray(value), place, arrays)
        case _ if (torch := sys.modules.get("torch")) and isinstance(value, torch.Tensor):
            kind, content = "tensor", _store(value.detach().cpu().numpy(), place, arrays)
        case _:
            what = f"a {type(value).__name__}; a training goes on from arrays, tensors, numbers and texts"
            raise TypeError(f"{place.lstrip('.')} is {what}")
    return [kind, content]


def _key(key: object, place: str) -> object:
    if key is None or type(key) in _PLAIN:
        return key
    raise TypeError(f"{place.lstrip('.')} has a key that is a {type(key).__name__}; give numbers and texts")


def _store(array: Array, place: str, arrays: Arrays) -> str:
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{place.lstrip('.')} is an array of {array.dtype}; a training goes on from numbers")
    name = str(len(arrays))
    arrays[name] = np.array(array, order="C")
    return name


def _restore(layout: Any, arrays: Arrays) -> Any:
    if not isinstance(layout, list):
        return layout
    kind, content = layout
    found: Any
    match kind:
        case "dict":
            found = {key: _restore(one, arrays) for key, one in content}
        case "list":
            found = [_restore(one, arrays) for one in content]
        case "tuple":
            found = tuple(_restore(one, arrays) for one in content)
        case "scalar":
            found = arrays[content][()]
        case "array":
            found = arrays[content].copy()
        case _:
            import torch

            # A clone has memory of torch's own, with torch's alignment.
            found = torch.from_numpy(arrays[content].copy()).clone()
    return found
