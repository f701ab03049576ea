"""Checkpoints under any other URL, through fsspec where the job's Python has it.

Object stores show an object once it is whole; other file systems may show part of a file. The manifest comes last and has
every digest, so neither can pass for a checkpoint.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Callable, List

from .local_store import Digesting, Receipt
from .mishaps import Damaged, Refused


class RemoteStore:
    """The same promises as LocalStore's but for two: no links are looked for, and the disk is the far side's business."""

    def __init__(self, url: str) -> None:
        """Raises Refused where fsspec, or what it needs for this kind of URL, is not installed."""
        self.where = url.rstrip("/")
        try:
            import fsspec  # type: ignore[import-untyped,unused-ignore]

            self._system: Any
            self._system, self._root = fsspec.core.url_to_fs(self.where, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise Refused(
                f"Checkpoints under {self.where} need the package fsspec and its part for such URLs in the job's Python: {error}"
            ) from error

    def folders(self) -> List[str]:
        """The names in the run's folder."""
        self._system.invalidate_cache(self._root)
        try:
            found = self._system.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in found)

    def make(self, folder: str) -> None:
        """A folder for a checkpoint; it may be there."""
        self._system.makedirs(self._path(folder), exist_ok=True)

    def write(self, folder: str, name: str, fill: Callable[[BinaryIO], None]) -> Receipt:
        """A file of what `fill` writes."""
        with self._system.open(self._path(folder, name), "wb") as file:
            sink = Digesting(lambda data: int(file.write(data)))
            fill(sink)  # type: ignore[arg-type]
        return sink.receipt()

    def read(self, folder: str, name: str) -> BinaryIO:
        """The file, open. Raises Damaged where it is missing."""
        try:
            opened: BinaryIO = self._system.open(self._path(folder, name), "rb")
        except FileNotFoundError as error:
            raise Damaged(f"{name} is missing") from error
        return opened

    def has(self, folder: str, name: str) -> bool:
        """Whether the folder has such an entry."""
        self._system.invalidate_cache(self._path(folder))
        return bool(self._system.exists(self._path(folder, name)))

    def rename(self, old: str, new: str) -> None:
        """A checkpoint's folder."""
        self._system.mv(self._path(old), self._path(new), recursive=True)

    def remove(self, folder: str, last: str) -> None:
        """A checkpoint's folder with what is in it. The file `last` goes first, as without it the rest is none."""
        if self.has(folder, last):
            self._system.rm_file(self._path(folder, last))
        self._system.rm(self._path(folder), recursive=True)

    def _path(self, *names: str) -> str:
        return "/".join((self._root, *names))
