"""Which mutators fit an input, and how many of them change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal

from tests.fuzz.mutate.protobuf import PROTOBUF
from tests.fuzz.mutate.raw import RAW, Mutator
from tests.fuzz.mutate.text import TEXT
from tests.fuzz.mutate.tree import JSON, MSGPACK

Shape = Literal["bytes", "text", "json", "msgpack", "protobuf"]
SHAPES: Mapping[Shape, tuple[Mutator, ...]] = {
    "bytes": RAW,
    "text": TEXT,
    "json": JSON * 6 + TEXT,
    "msgpack": MSGPACK,
    "protobuf": PROTOBUF,
}
"""Form of a target's inputs -> mutators that keep to the form more or less, so that more than the first check is reached."""
MOST_BYTES = 1 << 18
"""Longer inputs are cut: the cost of an input should depend on the parser, not on the length."""
_LONG_BYTES = 1 << 14
"""An input that has become so long is not changed further."""
_RAW_SHARE = 0.25


def mutated(dice: Random, corpus: Sequence[bytes], shape: Shape) -> bytes:
    """Return a genuine input with one to six changes."""
    data = dice.choice(corpus)
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 6))):
        mutators = RAW if dice.random() < _RAW_SHARE else SHAPES[shape]
        data = dice.choice(mutators)(dice, data, corpus)[:MOST_BYTES]
        if len(data) > _LONG_BYTES:
            break
    return data
