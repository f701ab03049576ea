"""Shards of a tensor are joined again for any number of ranks."""

from __future__ import annotations

import io
import itertools
import json

import pytest

torch = pytest.importorskip("torch")

from headway_job.checkpoints.errors import Damaged  # noqa: E402
from headway_job.checkpoints.state import shards as shards_module  # noqa: E402
from headway_job.checkpoints.state.shards import ReadRequest, Shard, ShardReader, read_index, write  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402


def bands(length: int, cuts: list[int]) -> list[tuple[int, int]]:
    """Return starts and ends of intervals."""
    ends = sorted({min(cut, length) for cut in cuts} | {0, length})
    return list(itertools.pairwise(ends)) or [(0, length)]


def boxes(shape: list[int], cuts: list[list[int]]) -> list[tuple[slice, ...]]:
    """Return a grid of boxes that cover the whole tensor."""
    return [
        tuple(slice(start, end) for start, end in box)
        for box in itertools.product(*(bands(length, cut) for length, cut in zip(shape, cuts, strict=True)))
    ]


def stored(whole: torch.Tensor, kept: list[tuple[slice, ...]], files: int) -> dict[str, bytes]:
    """Distribute the boxes over so many ranks."""
    written = {}
    for rank in range(files):
        own = [
            Shard("w", tuple(whole.shape), tuple(one.start for one in box), whole[box].contiguous())
            for box in kept[rank::files]
        ]
        file = io.BytesIO()
        write(own, file)
        written[f"rank-{rank}.shards"] = file.getvalue()
    return written


def read(files: dict[str, bytes]) -> ShardReader:
    kept = [one for name, data in files.items() for one in read_index(io.BytesIO(data), name)]
    return ShardReader(kept, lambda name: io.BytesIO(files[name]))


CUTS = st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=3, max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), max_size=3),
    before=CUTS,
    after=CUTS,
    files=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]),
    portion=st.sampled_from([1, 50, 1 << 26]),
)
def test_any_split_is_read_back_in_any_other(
    shape: list[int], before: list[list[int]], after: list[list[int]], files: int, dtype: torch.dtype, portion: int
) -> None:
    whole = (torch.rand(shape) * 100).to(dtype)
    found = read(stored(whole, boxes(shape, before[: len(shape)]), files))
    mine = boxes(shape, after[: len(shape)])
    into = [torch.empty_like(whole[box]) for box in mine]

    at_once, shards_module._READ_BYTES = shards_module._READ_BYTES, portion
    try:
        found.fill([ReadRequest("w", tuple(one.start for one in box), of) for box, of in zip(mine, into, strict=True)])
    finally:
        shards_module._READ_BYTES = at_once

    for box, of in zip(mine, into, strict=True):
        assert torch.equal(of, whole[box])


def test_only_the_rows_that_are_asked_for_are_read() -> None:
    whole = torch.arange(4000.0).reshape(1000, 4)
    files = stored(whole, boxes([1000, 4], [[500], []]), 2)

    class Counting(io.BytesIO):
        count = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            Counting.count += len(data)
            return data

    kept = [one for name, data in files.items() for one in read_index(io.BytesIO(data), name)]
    into = torch.empty(3, 4)
    ShardReader(kept, lambda name: Counting(files[name])).fill([ReadRequest("w", (498, 0), into)])

    assert torch.equal(into, whole[498:501])
    assert Counting.count == 3 * 4 * 4


def test_a_tensor_is_whole_or_damaged() -> None:
    whole = torch.arange(12.0).reshape(6, 2)
    files = stored(whole, boxes([6, 2], [[2, 4], []]), 3)
    lacking = {name: data for name, data in files.items() if name != "rank-1.shards"}

    with pytest.raises(Damaged, match="the shards of w are incomplete"):
        read(lacking).fill([ReadRequest("w", (0, 0), torch.empty(6, 2))])
    with pytest.raises(Damaged, match="are incomplete"):
        read(files).fill([ReadRequest("v", (0, 0), torch.empty(6, 2))])
    with pytest.raises(Damaged, match="are incomplete"):
        read(files).fill([ReadRequest("w", (0,), torch.empty(12))])

    kept = [one for name, data in files.items() for one in read_index(io.BytesIO(data), name)]
    short = ShardReader(kept, lambda name: io.BytesIO(files[name][:-1]))
    with pytest.raises(Damaged, match=r"ends within w"):
        short.fill([ReadRequest("w", (0, 0), torch.empty(6, 2))])

    read(lacking).fill([ReadRequest("w", (0, 0), torch.empty(2, 2))])


def index(text: str) -> bytes:
    return b"hwshard1" + len(text.encode()).to_bytes(8, "big") + text.encode()


ROW = {"name": "w", "dtype": "float32", "shape": [4], "offsets": [0], "sizes": [4], "start": 0}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hwshard1",
        b"PK\3\4" + bytes(20),
        b"hwshard1" + b"\xff" * 8,
        index("[")[:-1],
        index("[1]"),
        index(json.dumps([{**ROW, "dtype": "load"}])),
        index(json.dumps([{**ROW, "dtype": "nothing"}])),
        index(json.dumps([{**ROW, "sizes": [5]}])),
        index(json.dumps([{**ROW, "offsets": [-1]}])),
        index(json.dumps([{**ROW, "sizes": [2, 2]}])),
        index(json.dumps([{**ROW, "start": -8}])),
    ],
)
def test_an_index_that_cannot_be_is_damaged(data: bytes) -> None:
    with pytest.raises(Damaged, match=r"rank-0\.shards"):
        read_index(io.BytesIO(data), "rank-0.shards")
