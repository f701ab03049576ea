"""Weights: a safetensors file with a model card beside it. Loading runs no code from a file, and needs no torch.

<name>.safetensors   the tensors; the header names system, encoder and seed
<name>.json          the card, with the SHA-256 of the other
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from policies.errors import WeightsError
from policies.learned.weights.card import ModelCard
from policies.learned.weights.files import prepare, put_in_place

if TYPE_CHECKING:
    import torch

Array: TypeAlias = npt.NDArray[Any]
_PREFIX_BYTES = 8
"""A safetensors file begins with the length of its header, little-endian."""
_OF = "headway"


class Tensor(Protocol):
    """An array with shape and dtype: numpy's arrays and torch's tensors."""

    @property
    def shape(self) -> Any:
        """Its lengths."""

    @property
    def dtype(self) -> Any:
        """numpy's or torch's."""


def pretrained() -> Traversable:
    """Return the folder of the weights that come with Headway."""
    return resources.files("policies.learned") / "pretrained"


def located(option: str, system: str, shipped: str) -> tuple[Path | Traversable, str]:
    """Return folder and name of the weights of a policy's option `weights`: '' means those that come with Headway.

    A folder is that of a policy training (its `best/` has the weights), or one in which weights are named by their system.
    """
    if not option:
        return pretrained(), shipped
    folder = Path(str(option)).expanduser()  # a folder such as 2026 is read as a number on command lines
    return (best, system) if (best := folder / "best").is_dir() else (folder, system)


def save(folder: Path, name: str, state: Mapping[str, Array | torch.Tensor], card: ModelCard) -> ModelCard:
    """Write weights and card, the card last, each completely or not at all. Returns the card with digest and parameters.

    Equal tensors under equal cards make equal files. A kill between the two leaves a pair that `load` refuses, never a wrong
    one. Raises WeightsError for tensors that no policy could serve, and OSError.
    """
    import safetensors.numpy

    weights_path, card_path = folder / f"{_checked(name)}.safetensors", folder / f"{name}.json"
    arrays = {key: _array(tensor) for key, tensor in state.items()}
    _check_finite(arrays, str(weights_path), "the training diverged: lower its learning rate")
    # One entry: the order of several is not the same in every process.
    content = safetensors.numpy.save(arrays, {_OF: _line(card)})
    card = replace(
        card,
        weights_sha256=hashlib.sha256(content).hexdigest(),
        parameters=sum(array.size for array in arrays.values()),
    )
    folder.mkdir(parents=True, exist_ok=True)
    prepare(weights_path, content)
    prepare(card_path, card.to_json().encode())
    put_in_place(weights_path)
    put_in_place(card_path)
    return card


def load(
    folder: Path | Traversable,
    name: str,
    *,
    system: str,
    encoder: str,
    network: Mapping[str, Tensor] | None = None,
) -> tuple[dict[str, Array], ModelCard]:
    """Return weights and their card, of that system and for that encoder (name/version).

    `network` is the `state_dict()` of the network for them: names, shapes and dtypes are compared with it. Raises
    WeightsError unless all fits, and the file is the one that the card was written for, to the bit.
    """
    card_file, weights_file = folder / f"{_checked(name)}.json", folder / f"{name}.safetensors"
    card = ModelCard.from_json(_text(_read(card_file), str(card_file)), str(card_file))
    if card.system != system:
        raise WeightsError(
            f"{card_file}: weights of {card.system}, not of {system}; give weights that {system} trained"
        )
    if card.encoder != encoder:
        raise WeightsError(
            f"{card_file}: made for encoder {card.encoder}, this Headway has {encoder}; "
            f"train again, or use the Headway that made them ({card.versions.get('headway', 'unknown')})"
        )
    content = _read(weights_file)
    if hashlib.sha256(content).hexdigest() != card.weights_sha256:
        raise WeightsError(f"{weights_file}: {_what_is_wrong(content, card)}; copy both files again, or train again")
    arrays = _unpack(content, str(weights_file))
    if (count := sum(array.size for array in arrays.values())) != card.parameters:
        raise WeightsError(f"{card_file}: says {card.parameters} parameters, there are {count}; train again")
    _check_finite(arrays, str(weights_file), "train again")
    if network is not None:
        _check_form(arrays, network, str(weights_file))
    return arrays, card


def fill(network: torch.nn.Module, arrays: Mapping[str, Array]) -> None:
    """Copy the weights that were loaded for a network into it."""
    import torch

    network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})


def _checked(name: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise WeightsError(f"{name!r} is not a name of weights; give letters, digits, '.', '_' and '-', and no folder")
    return name


def _array(tensor: Array | torch.Tensor) -> Array:
    """Return a dense copy on the CPU."""
    array = tensor if isinstance(tensor, np.ndarray) else tensor.detach().cpu().numpy()
    return np.array(array, order="C")


def _line(card: ModelCard) -> str:
    return f"{card.system} {card.encoder} seed {card.seed}"


def _read(file: Path | Traversable) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise WeightsError(f"{file}: no such file; weights are a .safetensors and a .json of one name") from None
    except OSError as error:
        raise WeightsError(f"{file}: cannot be read: {error.strerror}; check its owner and mode") from error


def _text(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise WeightsError(f"{where}: not a model card: {error}; copy it again, or train again") from error


def _what_is_wrong(content: bytes, card: ModelCard) -> str:
    """Return what is wrong with a file that is not the card's, as far as it can be found out."""
    named, length = _header(content)
    if not length:
        return "cut short within its header, or no safetensors file"
    if len(content) < length:
        return f"cut short: {len(content)} of {length} bytes"
    if len(content) > length:
        return f"{len(content) - length} bytes longer than its header says"
    if named != _line(card):
        return f"weights of {named} beside a card of {_line(card)}: files were swapped"
    return "its SHA-256 is not the card's: the file is damaged, or the card is of another training"


def _header(content: bytes) -> tuple[str, int]:
    """Return the header's description of the weights, and the length of the file; 0 where the header cannot be read."""
    start = _PREFIX_BYTES + int.from_bytes(content[:_PREFIX_BYTES], "little")
    try:
        header = json.loads(content[_PREFIX_BYTES:start])
        ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
        return str(header.get("__metadata__", {}).get(_OF)), start + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError):
        return "", 0


def _unpack(content: bytes, where: str) -> dict[str, Array]:
    import safetensors
    import safetensors.numpy

    try:
        found = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError, OverflowError) as error:
        raise WeightsError(f"{where}: no safetensors file of known types: {error}; train again") from error
    return {name: array.copy() for name, array in found.items()}


def _check_finite(arrays: Mapping[str, Array], where: str, mend: str) -> None:
    for name, array in arrays.items():
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise WeightsError(f"{where}: {name} has numbers that are NaN or infinite; {mend}")


def _check_form(arrays: Mapping[str, Array], network: Mapping[str, Tensor], where: str) -> None:
    for name in sorted(arrays.keys() ^ network.keys()):
        fault = "is not in the network" if name in arrays else "is missing"
        raise WeightsError(f"{where}: tensor {name} {fault}; give weights that were trained with this network")
    for name, tensor in network.items():
        here, there = _form(arrays[name]), _form(tensor)
        if here != there:
            raise WeightsError(
                f"{where}: {name} is {here}, the network has {there}; give weights that were trained with this network"
            )


def _form(tensor: Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype} {'x'.join(str(int(length)) for length in tensor.shape) or 'scalar'}"
