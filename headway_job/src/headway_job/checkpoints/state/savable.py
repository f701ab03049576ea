"""Checks of what a state contains: tensors must have their values in memory. Others would be read at an address that is not theirs.

A wrapper tensor has a shape and no memory: its address is 0, and its values are in other tensors. So have tensors on the device
`meta`, and those whose storage was freed. Reading one as if it had memory ends the process with SIGSEGV.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Tuple

import torch

from ..errors import UnsavableError

Parts = Callable[[torch.Tensor], Iterable[torch.Tensor]]
_ADDRESSED = ("cpu", "cuda")
"""Devices on which each tensor with values has an address."""
_ADVICE = "Give a state_dict of tensors, numbers, text, lists and dicts."


def path_text(path: Tuple[Any, ...]) -> str:
    """Return the path of a value in a state as a message names it: model['weight']."""
    if not path:
        return "the state"
    return str(path[0]) + "".join(f"[{step!r}]" for step in path[1:])


def unknown_type(value: Any, path: Tuple[Any, ...]) -> UnsavableError:
    """Return the error for an object of a type that could not be read back."""
    kind = type(value)
    hint = " Give an array as a tensor (torch.from_numpy)." if kind.__name__ == "ndarray" else f" {_ADVICE}"
    return UnsavableError(
        f"{path_text(path)} cannot be saved: an object of the type {kind.__module__}.{kind.__qualname__} cannot be read back "
        f"without executing code.{hint}"
    )


def check_tensor(value: torch.Tensor, path: Tuple[Any, ...], parts: Parts) -> None:
    """Raise UnsavableError unless the tensor has memory of its own. `parts`: function that returns its dense tensors."""
    kind = type(value)
    if value.is_meta:
        why = "it is on the device meta, and has no values"
    elif hasattr(kind, "__tensor_flatten__") or value.is_nested:
        why = "its values are in other tensors"
    elif value.device.type in _ADDRESSED and not value._is_zerotensor() and not _has_memory(value, parts):
        why = "it has no memory of its own"
    else:
        return
    raise UnsavableError(
        f"{path_text(path)} cannot be saved: it is a tensor of the type {kind.__module__}.{kind.__qualname__}, and {why}. "
        "Give headway_job.checkpoint an object whose state_dict has ordinary tensors, such as the dequantized ones."
    )


def _has_memory(value: torch.Tensor, parts: Parts) -> bool:
    try:
        return all(part.data_ptr() != 0 or part.numel() == 0 for part in parts(value))
    except (RuntimeError, ValueError, NotImplementedError):
        return False  # torch refuses the address: of wrappers, and of parameters that have no shape yet
