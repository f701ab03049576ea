"""Checkpoints of users' jobs, which lie in users' folders."""

from __future__ import annotations

import io
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.fuzz.target import BrokenPromiseError, Target

_FOLDER = "step-000000041-0003"


def _errors() -> tuple[type[Exception], ...]:
    from headway_job.checkpoints.errors import Damaged, Refused

    return Damaged, Refused


def manifests() -> list[bytes]:
    """Return manifests of one rank, and of two with shards."""
    from headway_job.checkpoints.catalog import Catalog, Manifest, rank_file, shard_file
    from headway_job.checkpoints.stores.base import Receipt

    found = []
    for ranks, kinds in ((1, (rank_file,)), (2, (rank_file, shard_file))):
        files = {kind(rank): Receipt(10, sha256(b"x").digest()) for rank in range(ranks) for kind in kinds}
        store = _OneFile()
        Catalog(store, 2).write_manifest(_FOLDER, Manifest(41, ranks, 7, "2.13.0", 1e9, 0.1, 0.2, files))  # type: ignore[arg-type]
        found.append(store.data)
    return found


class _OneFile:
    """A store with one file."""

    where = "a store"
    data = b""

    def write(self, _folder: str, _name: str, fill: Any) -> None:
        file = io.BytesIO()
        fill(file)
        self.data = file.getvalue()

    def read(self, _folder: str, _name: str) -> io.BytesIO:
        return io.BytesIO(self.data)


def read_manifest(data: bytes, _folder: Path) -> object:
    """Read a manifest."""
    from headway_job.checkpoints.catalog import Catalog

    store = _OneFile()
    store.data = data
    found = Catalog(store, 2).manifest(_FOLDER)  # type: ignore[arg-type]
    if not 1 <= found.world_size <= len(found.files) or found.step < 0:
        raise BrokenPromiseError("a manifest without the files of its ranks")
    return found


def shard_files() -> list[bytes]:
    """Return a rank's file of shards."""
    import torch
    from headway_job.checkpoints.state.shards import Shard, write

    file = io.BytesIO()
    write(
        [Shard("a", (4, 6), (0, 0), torch.ones(2, 6)), Shard("b", (), (), torch.tensor(3.0, dtype=torch.bfloat16))],
        file,
    )
    return [file.getvalue()]


def read_shards(data: bytes, _folder: Path) -> object:
    """Read a file of shards, and fill tensors from it."""
    import torch
    from headway_job.checkpoints.state.shards import ReadRequest, ShardReader, read_index

    found = read_index(io.BytesIO(data), "rank-0.shards")
    reader = ShardReader(found, lambda _name: io.BytesIO(data))
    reader.fill([ReadRequest("a", (0, 0), torch.empty(2, 6)), ReadRequest("b", (), torch.empty(()))])
    return found


def receipts() -> list[bytes]:
    """Return the receipts of a rank that has written one file, two, and none."""
    from headway_job.checkpoints.receipts import encode
    from headway_job.checkpoints.stores.base import Receipt

    receipt = Receipt(10, sha256(b"x").digest())
    return [
        encode(0, written)
        for written in ({"rank-0.pt": receipt}, {"rank-0.pt": receipt, "rank-0.shards": receipt}, None)
    ]


def _targets() -> tuple[Target, ...]:
    try:
        errors = _errors()
    except ImportError:
        errors = ()
    return (
        Target(
            "checkpoint-manifests",
            "manifest.json of checkpoints",
            "json",
            manifests,
            read_manifest,
            errors,
            cost=2,
            needs="torch",
        ),
        Target(
            "checkpoint-shards",
            "files with shards of tensors, whose digest somebody else has made",
            "bytes",
            shard_files,
            read_shards,
            errors,
            cost=4,
            needs="torch",
        ),
    )


CHECKPOINTS = _targets()
