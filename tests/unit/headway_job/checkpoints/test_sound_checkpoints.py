"""A checkpoint whose files are intact is never called damaged, whatever keeps it from being loaded: it is refused, and stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from headway_job.checkpoints.catalog import MANIFEST, Catalog, Manifest, folder_name, rank_file
from headway_job.checkpoints.errors import Refused
from headway_job.checkpoints.ranks.rank_group import SingleRank
from headway_job.checkpoints.restore import load_newest
from headway_job.checkpoints.state import state_dict, tensor_file
from headway_job.checkpoints.stores.local import LocalStore

FOLDERS = [folder_name(4, 1), folder_name(8, 2)]


def saved(path: Path) -> LocalStore:
    """Return a store with two checkpoints of one rank, at steps 4 and 8."""
    store = LocalStore(str(path / "run"))
    for number, folder in enumerate(FOLDERS, 1):
        store.make(folder)
        state = {"shared": {}, "own": {}, "rng": {}}
        receipt = store.write(folder, rank_file(0), state_dict.encode(state).write)
        manifest = Manifest(4 * number, 1, 7, "2.9.0", 0.0, 0.1, 0.2, {rank_file(0): receipt})
        Catalog(store, 2).write_manifest(folder, manifest)
    return store


def newest_step(store: LocalStore) -> int:
    loaded = load_newest(Catalog(store, 2), SingleRank())
    assert loaded is not None
    return loaded.manifest.step


def test_an_intact_checkpoint_that_cannot_be_loaded_is_refused_and_stays(tmp_path: Path) -> None:
    """Its SHA-256 is right, but the state in it is of a later version."""
    store = saved(tmp_path)
    assert newest_step(store) == 8
    catalog = Catalog(store, 2)
    manifest = catalog.manifest(FOLDERS[1])
    later = store.write(
        FOLDERS[1], rank_file(0), lambda file: tensor_file.write({"headway_state": "99", "state": "[]"}, [], file)
    )
    catalog.write_manifest(FOLDERS[1], manifest._replace(files={rank_file(0): later}))

    with pytest.raises(Refused, match=r"is intact .* cannot be loaded"):
        newest_step(store)

    assert sorted(store.folders()) == FOLDERS


def test_a_manifest_of_a_later_format_is_refused_and_stays(tmp_path: Path) -> None:
    store = saved(tmp_path)
    manifest = Path(store.where) / FOLDERS[1] / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))

    with pytest.raises(Refused, match="has format 99"):
        newest_step(store)

    assert sorted(store.folders()) == FOLDERS
