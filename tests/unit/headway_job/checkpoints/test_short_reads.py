"""A read that fails without an error proves no damage: the checkpoint stays as it is."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

pytest.importorskip("torch")


from headway_job.checkpoints.catalog import MANIFEST, Catalog, Manifest, folder_name, rank_file
from headway_job.checkpoints.errors import Refused
from headway_job.checkpoints.ranks.rank_group import SingleRank
from headway_job.checkpoints.restore import _checked
from headway_job.checkpoints.stores.local import LocalStore, Receipt

STATE = bytes(range(256)) * 8
FOLDER = folder_name(4, 1)


class CutShort(io.BytesIO):
    """A connection that was cut: it delivers fewer bytes than the file has, without an error."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size)[:1000] if self.tell() == 0 else b""


def flipped(data: bytes) -> BinaryIO:
    return io.BytesIO(b"\xff" + data[1:])


class Flawed(LocalStore):
    """For a number of times, reading the file `name` gives what `flaw` returns."""

    name = rank_file(0)
    left = 0
    flaw: Callable[[bytes], BinaryIO] = staticmethod(CutShort)

    def read(self, folder: str, name: str) -> BinaryIO:
        file = super().read(folder, name)
        if name != self.name or self.left == 0:
            return file
        self.left -= 1
        with file:
            return self.flaw(file.read())


@pytest.fixture
def store(tmp_path: Path) -> Flawed:
    store = Flawed(str(tmp_path / "run"))
    store.make(FOLDER)
    receipt = store.write(FOLDER, rank_file(0), lambda file: file.write(STATE) and None)
    assert receipt == Receipt(len(STATE), hashlib.sha256(STATE).digest())
    Catalog(store, 2).write_manifest(FOLDER, Manifest(4, 1, 7, "2" * 1200, 0.0, 0.1, 0.2, {rank_file(0): receipt}))
    return store


@pytest.mark.parametrize("name", [rank_file(0), MANIFEST])
def test_a_read_that_ends_early_is_refused_and_nothing_changes(store: Flawed, name: str) -> None:
    store.name, store.left = name, 9

    with pytest.raises(Refused, match=rf"reading {name} ended after 1000 of \d+ bytes"):
        _checked(Catalog(store, 2), FOLDER, SingleRank())

    assert store.folders() == [FOLDER]


def test_a_file_that_differs_only_once_is_intact(store: Flawed) -> None:
    store.flaw, store.left = flipped, 1

    assert _checked(Catalog(store, 2), FOLDER, SingleRank()) is not None
    assert store.folders() == [FOLDER]


def test_another_content_each_time_is_refused_and_nothing_changes(store: Flawed) -> None:
    kinds = iter([flipped, lambda data: io.BytesIO(data[:-1] + b"\0")])
    store.flaw, store.left = lambda data: next(kinds)(data), 2

    with pytest.raises(Refused, match="was read twice, with different results"):
        _checked(Catalog(store, 2), FOLDER, SingleRank())

    assert store.folders() == [FOLDER]


def test_a_file_that_differs_twice_alike_is_damaged(store: Flawed) -> None:
    store.flaw, store.left = flipped, 2

    assert _checked(Catalog(store, 2), FOLDER, SingleRank()) is None
    assert store.folders() == [f"damaged-{FOLDER}"]
