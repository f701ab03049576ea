"""Stores that need time for each file are waited for, as long as they finish one file after the other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

pytest.importorskip("fsspec")
pytest.importorskip("torch")

import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from headway_job.checkpoints.stores.io_deadline import IoDeadline, StoreTimeout
from headway_job.checkpoints.stores.remote import _OBJECT_STORES, RemoteStore

from tests.unit.headway_job.checkpoints.stores import looks

EACH = 4
"""Looks of the deadline in which the store handles one object."""
FILES = 10
FOLDER = "step-000000001-0001"


class Slow(MemoryFileSystem):
    """Needs some time for each object, also if one call handles many."""

    protocol = "slow"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    work: ClassVar[Callable[[], None]]

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        type(self).work()
        super().cp_file(path1, path2, **options)

    def rm_file(self, path: str) -> None:
        type(self).work()
        super()._rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: Any = None) -> None:
        for each in self.expand_path(path, recursive=recursive, maxdepth=maxdepth):
            if self.isfile(each):
                self.rm_file(each)
        super().rm(path, recursive=recursive, maxdepth=maxdepth) if self.exists(path) else None


@pytest.fixture(params=["objects", "files"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteStore]:
    fsspec.register_implementation("slow", Slow, clobber=True)
    if request.param == "objects":
        monkeypatch.setattr(sys.modules[RemoteStore.__module__], "_OBJECT_STORES", {*_OBJECT_STORES, "slow"})
    Slow.store.clear()
    time = looks.install(monkeypatch)
    monkeypatch.setattr(Slow, "work", lambda: time.take(EACH), raising=False)
    assert EACH < looks.LOOKS < FILES * EACH
    store = RemoteStore("slow://bucket/run", max_silence_s=2.0, pauses_s=())
    for number in range(FILES):
        store.write(FOLDER, f"rank-{number}.pt", lambda file: file.write(b"state") and None)
    yield store
    Slow.store.clear()


def test_a_large_folder_is_removed_though_it_takes_longer_than_a_silence_may(store: RemoteStore) -> None:
    store.write(FOLDER, "manifest.json", lambda file: file.write(b"{}") and None)

    store.remove(FOLDER, "manifest.json")

    assert FOLDER not in store.folders()


def test_a_large_folder_of_objects_is_renamed_though_it_takes_longer_than_a_silence_may(store: RemoteStore) -> None:
    if not store._holds_objects:
        pytest.skip("file systems rename a folder in one step")

    store.rename(FOLDER, f"damaged-{FOLDER}")

    assert store.folders() == [f"damaged-{FOLDER}"]
    assert all(store.size_bytes(f"damaged-{FOLDER}", f"rank-{number}.pt") == 5 for number in range(FILES))


def test_a_store_that_finishes_no_file_is_abandoned(store: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.undo()  # real time
    monkeypatch.setattr(Slow, "work", lambda: end.wait(60), raising=False)
    store._deadline = IoDeadline(0.1)

    with pytest.raises(StoreTimeout, match=r"no answer for 0\.1 s"):
        store.remove(FOLDER, "manifest.json")
    end.set()
