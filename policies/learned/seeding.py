"""Seeds of everything random in a training, derived from its one seed by what they are for."""

from __future__ import annotations

import hashlib
import json

import numpy as np

_LARGEST = 1 << 31


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """The source of random numbers of that path, for example ("exploration", 17): independent of all other paths' and seeds'."""
    text = json.dumps([seed, *path]).encode()
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest()))


def seeds(count: int, seed: int, *path: int | str) -> list[int]:
    """So many seeds of that path, for example one for each of several environments."""
    return [int(each) for each in generator(seed, *path).integers(_LARGEST, size=count)]
