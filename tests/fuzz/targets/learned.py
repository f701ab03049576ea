"""Weights and trainings from any source. Digests are corrected after each change, so that more than the digests is tested."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from policies.errors import TrainingError, WeightsError
from policies.learned.training.run.settings import read_settings, write_settings
from policies.learned.training.run.snapshot import from_bytes, to_bytes
from policies.learned.weights import weights
from policies.learned.weights.card import ModelCard
from tests.fuzz.target import Target
from tests.unit.policies.learned.examples.cards import card

_STATE = {"layer.weight": np.ones((3, 4), dtype=np.float32), "layer.bias": np.zeros(3, dtype=np.float32)}


def cards() -> list[bytes]:
    """Return model cards."""
    return [card().to_json().encode(), card(system="sched2-sb3").to_json().encode()]


def read_card(data: bytes, _folder: Path) -> object:
    """Read a card, and write it."""
    return ModelCard.from_json(data.decode("utf-8", "replace"), "card.json").to_json()


def weight_files() -> list[bytes]:
    """Return a file of weights."""
    with TemporaryDirectory() as folder:
        weights.save(Path(folder), "toy", _STATE, card())
        return [(Path(folder) / "toy.safetensors").read_bytes()]


def read_weights(data: bytes, folder: Path) -> object:
    """Load weights beside a card with their digest."""
    whole = weights.save(folder / "made", "toy", _STATE, card())
    values = json.loads(whole.to_json()) | {"weights_sha256": hashlib.sha256(data).hexdigest()}
    (folder / "toy.json").write_text(json.dumps(values))
    return weights.load(folder, "toy", system="toy", encoder="toy/1", network=_STATE)


def points() -> Sequence[bytes]:
    """Return checkpoints of a training, without their first line."""
    import torch  # before the first reading: it takes 180 MB

    value = {"t": torch.ones(2), "a": np.ones(3), "b": [1, 2.5, "x", None], "c": (np.float32(2.0), {"d": np.arange(4)})}
    return [to_bytes(value).split(b"\n", 1)[1]]


def read_point(data: bytes, _folder: Path) -> object:
    """Read a checkpoint of a training."""
    line = b"headway-point-1 " + hashlib.sha256(data).hexdigest().encode() + b"\n"
    return from_bytes(line + data, "point")


def training_settings() -> list[bytes]:
    """Return the settings of a training."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "settings.json"
        write_settings(path, {"card": json.loads(card(system="sched2").to_json()), "seed": 3})
        return [path.read_bytes()]


LEARNED = (
    Target("weight-cards", "model cards", "json", cards, read_card, (WeightsError,), cost=2),
    Target(
        "weight-files",
        "safetensors files",
        "bytes",
        weight_files,
        read_weights,
        (WeightsError,),
        file="toy.safetensors",
        cost=12,
    ),
    Target(
        "training-points",
        "checkpoints of a training",
        "bytes",
        points,
        read_point,
        (TrainingError,),
        cost=2,
        needs="torch",
    ),
    Target(
        "training-settings",
        "settings.json of a training",
        "json",
        training_settings,
        lambda _data, folder: read_settings(folder / "settings.json"),
        (TrainingError,),
        file="settings.json",
        cost=2,
    ),
)
