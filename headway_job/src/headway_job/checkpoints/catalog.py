"""The checkpoints of one run: one folder for each, which is complete once it has a manifest.

step-000000041-0003 is the third attempt of this run to save, after 41 steps. Attempts are numbered across restarts, and no number
is used twice. So a folder is written once, and the highest number is the newest, whatever the clock or the step says.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, Tuple

from .errors import CheckpointError, Damaged, Refused
from .stores.base import Receipt, Store

MANIFEST = "manifest.json"
OLDER_SUFFIX = ".pt"
"""End of the names of files that torch.save has written, in the older formats."""
_OLDER, _OLDER_SHARDED, _WHOLE, _SHARDED = 1, 2, 3, 4
"""Formats of the manifest. With shards, each rank also has a file of them. The older formats, whose files are pickles, are read and
no longer written. A version that writes another format, or one more field, is refused by the versions before it, which then
destroy nothing."""
_FOLDER = re.compile(r"step-(\d{9,18})-(\d{4,12})\Z")
_SET_ASIDE = re.compile(r"damaged-step-(\d{9,18})-(\d{4,12})\Z")
_MAX_MANIFEST_BYTES = 1 << 24


class Manifest(NamedTuple):
    """Facts and files of a checkpoint."""

    step: int
    """Number of steps done, which is the number of the next step."""
    world_size: int
    seed: int
    """Rank 0's seed; ranks that did not exist before derive theirs from it."""
    torch: str
    saved_at_s: float
    """Wall clock of rank 0 (Unix time), for people: nothing depends on it."""
    copy_s: float
    write_s: float
    files: Dict[str, Receipt]

    @property
    def sharded(self) -> bool:
        """True if each rank also wrote a file of shards."""
        return shard_file(0) in self.files

    def state_file(self, rank: int) -> str:
        """Return the name of the file with a rank's state."""
        return rank_file(rank) if rank_file(0) in self.files else older_rank_file(rank)

    def own_file(self, rank: int) -> str:
        """Return the name of the file with a rank's own objects: for a rank that is new, rank 0's."""
        return self.state_file(rank if rank < self.world_size else 0)


def folder_name(step: int, number: int) -> str:
    """Return the folder of an attempt, by the steps done and its number."""
    return f"step-{step:09d}-{number:04d}"


def rank_file(rank: int) -> str:
    """Return the name of a rank's file."""
    return f"rank-{rank}.safetensors"


def older_rank_file(rank: int) -> str:
    """Return the name of a rank's file in the older formats."""
    return f"rank-{rank}{OLDER_SUFFIX}"


def shard_file(rank: int) -> str:
    """Return the name of the file with a rank's shards."""
    return f"rank-{rank}.shards"


class Catalog:
    """Invariant: a complete checkpoint is removed only when `keep` newer ones are complete."""

    def __init__(self, store: Store, keep: int, *, read_only: bool = False) -> None:
        """`read_only`: the checkpoints are those of another job, and none is renamed."""
        self.store = store
        self._read_only = read_only
        self._keep = keep

    def newest_first(self) -> List[str]:
        """Return the folders with a manifest, intact or not."""
        return [folder for _, folder in self._numbered(_FOLDER) if self.store.has(folder, MANIFEST)]

    def next_number(self) -> int:
        """Return a number above those of all attempts that left a folder."""
        used = [number for number, _ in self._numbered(_FOLDER) + self._numbered(_SET_ASIDE)]
        return max(used, default=0) + 1

    def write_manifest(self, folder: str, manifest: Manifest) -> None:
        """Write the manifest, which makes the folder a complete checkpoint."""
        row: Dict[str, Any] = {"format": _SHARDED if manifest.sharded else _WHOLE, **manifest._asdict()}
        row["files"] = {
            name: {"size_bytes": receipt.size_bytes, "sha256": receipt.digest.hex()}
            for name, receipt in sorted(manifest.files.items())
        }
        text = json.dumps(row, indent=1) + "\n"
        self.store.write(folder, MANIFEST, lambda file: _put(file, text.encode()))

    def manifest(self, folder: str) -> Manifest:
        """Read the manifest. Raises Damaged if it is truncated or garbled, Refused if another version may have written it."""
        return _parse(self._read_manifest(folder))

    def tidy(self, before: int) -> None:
        """Remove attempts before that number: those that are not complete, and all complete ones but the newest `keep`."""
        complete = 0
        for number, folder in self._numbered(_FOLDER):
            whole = self.store.has(folder, MANIFEST)
            complete += whole
            if number < before and (not whole or complete > self._keep):
                self._remove(folder)
        for _, folder in self._numbered(_SET_ASIDE)[self._keep :]:
            self._remove(folder)

    def drop(self, folder: str) -> None:
        """Remove an attempt that failed."""
        if not self.store.has(folder, MANIFEST):
            self._remove(folder)

    def set_aside(self, folder: str) -> None:
        """Rename a damaged checkpoint: it is kept for inspection, but neither restored again nor counted among those to keep."""
        if not self._read_only:
            self.store.rename(folder, "damaged-" + folder)

    def _read_manifest(self, folder: str) -> bytes:
        with self.store.read(folder, MANIFEST) as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            text = file.read(_MAX_MANIFEST_BYTES + 1)
        if len(text) < min(size_bytes, _MAX_MANIFEST_BYTES):
            raise OSError(f"reading {MANIFEST} ended after {len(text)} of {size_bytes} bytes")
        if len(text) > _MAX_MANIFEST_BYTES:
            raise Refused(f"{MANIFEST} has more than {_MAX_MANIFEST_BYTES} bytes, which this version does not read")
        return text

    def _remove(self, folder: str) -> None:
        try:
            self.store.remove(folder, MANIFEST)
        except (OSError, CheckpointError):
            pass  # it is gone already, or the next save tries again

    def _numbered(self, pattern: re.Pattern[str]) -> List[Tuple[int, str]]:
        """Return number and name of the folders that match, the newest first."""
        found = ((pattern.match(folder), folder) for folder in self.store.folders())
        return sorted(((int(match.group(2)), folder) for match, folder in found if match), reverse=True)


_FIELDS: Tuple[Tuple[str, Tuple[type, ...]], ...] = (
    ("step", (int,)),
    ("world_size", (int,)),
    ("seed", (int,)),
    ("torch", (str,)),
    ("saved_at_s", (float, int)),
    ("copy_s", (float, int)),
    ("write_s", (float, int)),
)
_MOST_RANKS = 1 << 20
_MOST_BYTES = 1 << 62
_MOST_SHOWN = 200
"""Characters of a manifest that a message repeats."""


_KINDS: Dict[int, Tuple[Callable[[int], str], ...]] = {
    _OLDER: (older_rank_file,),
    _OLDER_SHARDED: (older_rank_file, shard_file),
    _WHOLE: (rank_file,),
    _SHARDED: (rank_file, shard_file),
}
"""Format -> files of each rank."""


def _parse(text: bytes) -> Manifest:
    """Raise Damaged if the text is no manifest, Refused if another version may have written it."""
    try:
        row = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise _unreadable(error) from error
    if not isinstance(row, dict):
        raise Damaged(f"{MANIFEST} cannot be read (it holds no object)")
    _check_format(row)
    try:
        files = {name: _receipt(of) for name, of in row["files"].items()}
        found = Manifest(files=files, **{name: _value(row[name], kinds) for name, kinds in _FIELDS})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(error) from error
    # The number of ranks is compared with the files first: it may be any number, and each rank takes memory.
    if found.step < 0 or not 1 <= found.world_size <= min(len(files), _MOST_RANKS):
        raise Damaged(f"{MANIFEST} lists too few files, or an impossible step")
    if {kind(rank) for kind in _KINDS[row["format"]] for rank in range(found.world_size)} - set(files):
        raise Damaged(f"{MANIFEST} lists too few files")
    return found


def _receipt(row: Dict[str, Any]) -> Receipt:
    size_bytes, digest = _value(row["size_bytes"], (int,)), bytes.fromhex(row["sha256"])
    if not 0 <= size_bytes <= _MOST_BYTES:
        raise ValueError("a file of an impossible size")
    return Receipt(size_bytes, digest)


def _value(value: Any, kinds: Tuple[type, ...]) -> Any:
    """Return a value of exactly one of these types: True is no number here. Raises TypeError."""
    if type(value) not in kinds:
        raise TypeError(f"a {type(value).__name__} in place of a {kinds[0].__name__}")
    return value


def _unreadable(error: Exception) -> Damaged:
    return Damaged(f"{MANIFEST} cannot be read ({type(error).__name__}: {_shown(error)})")


def _shown(text: object) -> str:
    """Return what a manifest says as it may stand in a message."""
    return ascii(str(text)[:_MOST_SHOWN])[1:-1]


def _check_format(row: Dict[str, Any]) -> None:
    """Raise Refused if another version of headway_job may have written the manifest, as its checkpoint may be intact."""
    known = ", ".join(map(str, _KINDS))
    found = row.get("format")
    if type(found) is not int or found not in _KINDS:
        raise Refused(f"{MANIFEST} has format {_shown(repr(found))}, and this version of headway_job reads {known}")
    strange = sorted(set(row) - {"format", "files"} - {name for name, _ in _FIELDS})
    if strange:
        raise Refused(
            f"{MANIFEST} has the field '{_shown(strange[0])}', which this version of headway_job does not know"
        )


def _put(file: BinaryIO, data: bytes) -> None:
    file.write(data)
