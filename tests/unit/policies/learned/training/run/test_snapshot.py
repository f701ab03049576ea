"""Checkpoints: read back equal, in value and in kind, or refused."""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from policies.errors import TrainingError
from policies.learned.training.run.snapshot import from_bytes, to_bytes

plain = st.none() | st.booleans() | st.integers(-(2**130), 2**130) | st.floats(allow_nan=False) | st.text(max_size=5)
dtypes = st.sampled_from(["float32", "float64", "int64", "int32", "uint8", "bool", "uint32"])
array = arrays.arrays(dtypes, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
values = st.recursive(
    plain | array,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for each, counterpart in zip(one, other, strict=True):
            assert_same(each, counterpart)
    else:
        assert one == other


@given(values)
def test_a_snapshot_is_read_back_equal(value: Any) -> None:
    assert_same(from_bytes(to_bytes(value), "here"), value)


def test_tensors_and_numpy_scalars_keep_their_types() -> None:
    torch = pytest.importorskip("torch")
    state = {0: torch.arange(6).reshape(2, 3).T, "p": torch.nn.Parameter(torch.ones(2)), "s": np.float32(0.1)}
    found = from_bytes(to_bytes(OrderedDict(state)), "here")
    assert torch.equal(found[0], state[0])
    assert found[0].dtype == torch.int64
    assert torch.equal(found["p"], torch.ones(2))
    assert type(found["s"]) is np.float32
    assert found["s"] == np.float32(0.1)


class Colour(IntEnum):
    """Would come back as a number."""

    RED = 1


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        ({"a": [1, {"b": Path("x")}]}, r"a\[1\]\.b is a PosixPath"),
        ({"a": Colour.RED}, "a is a Colour"),
        ({"a": {Path("x"): 1}}, "a has a key that is a PosixPath"),
        ({"a": np.array(["x"])}, "a is an array of <U1"),
        ({"a": np.array([object()])}, "a is an array of object"),
    ],
)
def test_values_that_cannot_be_read_back_are_refused_by_name(value: Any, reported: str) -> None:
    with pytest.raises(TypeError, match=reported):
        to_bytes(value)


@given(st.data())
def test_any_damage_is_noticed(data: st.DataObject) -> None:
    packed = bytearray(to_bytes({"a": np.arange(4), "b": "text"}))
    if data.draw(st.booleans()):
        del packed[data.draw(st.integers(0, len(packed) - 1)) :]
    else:
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(TrainingError, match="a/point: damaged"):
        from_bytes(bytes(packed), "a/point")
