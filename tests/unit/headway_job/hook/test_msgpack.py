"""The msgpack of headway_job, compared with the library that the agent uses."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from headway_job.hook.msgpack import pack, unpack
from hypothesis import given
from hypothesis import strategies as st

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.text("x", min_size=250, max_size=300)
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20),
    max_leaves=40,
)
_MAPS = st.dictionaries(st.text(max_size=40), _LEAVES | st.lists(_LEAVES, max_size=20), max_size=20)


@given(_VALUES)
def test_the_library_reads_what_is_packed(value: Any) -> None:
    assert msgpack.unpackb(pack(value), raw=False) == value


@given(_VALUES)
def test_as_short_as_the_library_packs(value: Any) -> None:
    assert pack(value) == msgpack.packb(value)


@given(_MAPS)
def test_reads_what_the_library_packs(value: dict[str, Any]) -> None:
    assert unpack(msgpack.packb(value)) == value


@given(st.floats(width=32, allow_nan=False))
def test_reads_short_floats(value: float) -> None:
    assert unpack(msgpack.packb({"x": value}, use_single_float=True)) == {"x": value}


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_map_or_a_value_error(packet: bytes) -> None:
    try:
        found = unpack(packet)
    except ValueError:
        return
    assert msgpack.unpackb(packet, raw=False, strict_map_key=False) == found


@given(_MAPS, st.data())
def test_a_cut_packet_is_refused(value: dict[str, Any], data: st.DataObject) -> None:
    packet = msgpack.packb(value)
    cut = data.draw(st.integers(0, len(packet) - 1))
    with pytest.raises(ValueError):
        unpack(packet[:cut])


@pytest.mark.parametrize(
    "packet",
    [
        b"\x81\xa1x" + b"\x91" * 5000 + b"\xc0",  # a list in a list in a list ...
        b"\xdf\xff\xff\xff\xff",  # four billion entries
        b"\x81\xa1x\xdb\xff\xff\xff\xff",
        b"\x81\x01\x02",  # a key that is not text
        b"\x81\xa1x\xc7\x01\x05\x00",  # an extension
        b"\x81\xa1x\xc4\x01\x00",  # bytes
        b"\x80\x80",  # two maps
        b"",
    ],
)
def test_refuses_at_once(packet: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(packet)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_numbers_that_msgpack_has_not(value: int) -> None:
    with pytest.raises(ValueError, match="too large"):
        pack(value)


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="bytes is not used on this socket"):
        pack({"x": b""})
