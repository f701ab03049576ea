"""The checkpoints of one run: a folder each, complete once it has a manifest.

step-000000041-0003 is the third attempt of this run to save, after 41 steps. Attempts are numbered through restarts, and
no number is used twice: a folder is written once, and the highest number is the newest whatever the clock or the step says.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, Optional, Protocol, Tuple

from .errors import CheckpointError, Damaged, Refused
from .stores.local import Receipt

MANIFEST = "manifest.json"
_WHOLE, _SHARDED = 1, 2
"""The format that the manifest names; the second has a file of shards for each rank as well. A version that writes another
format, or one more field, is refused by the versions before it, which then destroy nothing."""
_FOLDER = re.compile(r"step-(\d{9,18})-(\d{4,12})\Z")
_SET_ASIDE = re.compile(r"damaged-step-(\d{9,18})-(\d{4,12})\Z")
_LARGEST_MANIFEST = 1 << 24


class Store(Protocol):
    """Where checkpoints are kept. OSError where it cannot be reached."""

    where: str

    def folders(self) -> List[str]:
        """The names in the run's folder."""

    def make(self, folder: str) -> None:
        """A folder for a checkpoint; it may be there."""

    def write(self, folder: str, name: str, fill: Callable[[BinaryIO], None]) -> Receipt:
        """A file of what `fill` writes."""

    def read(self, folder: str, name: str) -> BinaryIO:
        """The file, open. Raises Damaged where it is missing or no file, Refused where it is another user's."""

    def has(self, folder: str, name: str) -> bool:
        """Whether the folder has such an entry."""

    def size_bytes(self, folder: str, name: str) -> Optional[int]:
        """Of a file; None where there is none."""

    def rename(self, old: str, new: str) -> None:
        """A checkpoint's folder."""

    def remove(self, folder: str, last: str) -> None:
        """A checkpoint's folder with what is in it, the file `last` first."""


class Manifest(NamedTuple):
    """What a checkpoint consists of."""

    step: int
    """Steps done; the next one has this number."""
    world_size: int
    seed: int
    """Rank 0's, of which ranks that were not there before derive theirs."""
    torch: str
    saved_at_s: float
    """By the wall clock of rank 0, for people: nothing is decided by it."""
    copy_s: float
    write_s: float
    files: Dict[str, Receipt]

    @property
    def sharded(self) -> bool:
        """Whether each rank wrote a file of shards too."""
        return shard_file(0) in self.files


def folder_name(step: int, number: int) -> str:
    """Of the attempt with that number, after so many steps."""
    return f"step-{step:09d}-{number:04d}"


def rank_file(rank: int) -> str:
    """What a rank wrote."""
    return f"rank-{rank}.pt"


def shard_file(rank: int) -> str:
    """What a rank wrote of the tensors that are sharded over ranks."""
    return f"rank-{rank}.shards"


class Shelf:
    """Invariant: a complete checkpoint is removed only when `keep` newer ones are complete."""

    def __init__(self, store: Store, keep: int) -> None:
        self.store = store
        self._keep = keep

    def newest_first(self) -> List[str]:
        """The folders with a manifest, be it sound or not."""
        return [folder for _, folder in self._numbered(_FOLDER) if self.store.has(folder, MANIFEST)]

    def next_number(self) -> int:
        """Above every attempt's that left a trace."""
        used = [number for number, _ in self._numbered(_FOLDER) + self._numbered(_SET_ASIDE)]
        return max(used, default=0) + 1

    def write_manifest(self, folder: str, manifest: Manifest) -> None:
        """Makes a checkpoint of the folder."""
        row: Dict[str, Any] = {"format": _SHARDED if manifest.sharded else _WHOLE, **manifest._asdict()}
        row["files"] = {
            name: {"size_bytes": receipt.size_bytes, "sha256": receipt.digest.hex()}
            for name, receipt in sorted(manifest.files.items())
        }
        text = json.dumps(row, indent=1) + "\n"
        self.store.write(folder, MANIFEST, lambda file: _put(file, text.encode()))

    def manifest(self, folder: str) -> Manifest:
        """Read the manifest. Raises Damaged where it is cut short or garbled, Refused where another version may have written it."""
        with self.store.read(folder, MANIFEST) as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            text = file.read(_LARGEST_MANIFEST + 1)
        if len(text) < min(size_bytes, _LARGEST_MANIFEST):
            raise OSError(f"the reading of {MANIFEST} ended after {len(text)} of {size_bytes} bytes")
        if len(text) > _LARGEST_MANIFEST:
            raise Refused(f"{MANIFEST} has more than {_LARGEST_MANIFEST} bytes, which this version does not read")
        try:
            row = json.loads(text.decode())
        except ValueError as error:
            raise Damaged(f"{MANIFEST} cannot be read ({type(error).__name__}: {error})") from error
        if not isinstance(row, dict):
            raise Damaged(f"{MANIFEST} cannot be read (it holds no object)")
        _check_format(row)
        try:
            files = {
                str(name): Receipt(int(of["size_bytes"]), bytes.fromhex(of["sha256"]))
                for name, of in row["files"].items()
            }
            found = Manifest(files=files, **{name: kind(row[name]) for name, kind in _FIELDS})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{MANIFEST} cannot be read ({type(error).__name__}: {error})") from error
        missing = {kind(rank) for kind in _KINDS[row["format"]] for rank in range(found.world_size)} - set(found.files)
        if found.step < 0 or found.world_size < 1 or missing:
            raise Damaged(f"{MANIFEST} names too few files, or a step that cannot be")
        return found

    def tidy(self, before: int) -> None:
        """Removes what is not needed of the attempts before that one: those never completed, and all but the newest `keep`."""
        complete = 0
        for number, folder in self._numbered(_FOLDER):
            whole = self.store.has(folder, MANIFEST)
            complete += whole
            if number < before and (not whole or complete > self._keep):
                self._remove(folder)
        for _, folder in self._numbered(_SET_ASIDE)[self._keep :]:
            self._remove(folder)

    def drop(self, folder: str) -> None:
        """An attempt that failed."""
        if not self.store.has(folder, MANIFEST):
            self._remove(folder)

    def set_aside(self, folder: str) -> None:
        """A damaged one: kept for a look, and neither restored again nor counted among those to keep."""
        self.store.rename(folder, "damaged-" + folder)

    def _remove(self, folder: str) -> None:
        try:
            self.store.remove(folder, MANIFEST)
        except (OSError, CheckpointError):
            pass  # gone already, or tried again at the next save

    def _numbered(self, pattern: re.Pattern[str]) -> List[Tuple[int, str]]:
        """The newest first."""
        found = ((pattern.match(folder), folder) for folder in self.store.folders())
        return sorted(((int(match.group(2)), folder) for match, folder in found if match), reverse=True)


_FIELDS: Tuple[Tuple[str, Callable[[Any], Any]], ...] = (
    ("step", int),
    ("world_size", int),
    ("seed", int),
    ("torch", str),
    ("saved_at_s", float),
    ("copy_s", float),
    ("write_s", float),
)


_KINDS: Dict[int, Tuple[Callable[[int], str], ...]] = {_WHOLE: (rank_file,), _SHARDED: (rank_file, shard_file)}
"""The files of each rank, by format."""


def _check_format(row: Dict[str, Any]) -> None:
    """Raises Refused where another version of headway_job may have written the manifest: its checkpoint may well be sound."""
    known = " and ".join(map(str, _KINDS))
    if row.get("format") not in _KINDS:
        raise Refused(f"{MANIFEST} has format {row.get('format')!r}, and this version of headway_job reads {known}")
    strange = sorted(set(row) - {"format", "files"} - {name for name, _ in _FIELDS})
    if strange:
        raise Refused(f"{MANIFEST} has the field {strange[0]!r}, which this version of headway_job does not know")


def _put(file: BinaryIO, data: bytes) -> None:
    file.write(data)
