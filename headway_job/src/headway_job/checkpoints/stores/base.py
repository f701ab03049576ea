"""The methods that all stores have, and the receipt of a file that was written."""

from __future__ import annotations

import hashlib
import io
from typing import Any, BinaryIO, Callable, List, NamedTuple, Optional, Protocol

_MAX_WRITE_BYTES = 1 << 22


class Receipt(NamedTuple):
    """Size and SHA-256 of a file that was written."""

    size_bytes: int
    digest: bytes


class Store(Protocol):
    """A place for the checkpoints of one run. Methods raise OSError if it cannot be reached."""

    where: str

    def folders(self) -> List[str]:
        """Return the names in the run's folder."""

    def make(self, folder: str) -> None:
        """Create a folder for a checkpoint, unless it exists."""

    def write(self, folder: str, name: str, fill: Callable[[BinaryIO], None]) -> Receipt:
        """Write a file with what `fill` writes."""

    def read(self, folder: str, name: str) -> BinaryIO:
        """Open a file. Raises Damaged if it is missing or no file, Refused if it belongs to another user."""

    def has(self, folder: str, name: str) -> bool:
        """Return True if the folder has such an entry."""

    def size_bytes(self, folder: str, name: str) -> Optional[int]:
        """Return the size of a file; None = there is none."""

    def rename(self, old: str, new: str) -> None:
        """Rename the folder of a checkpoint."""

    def remove(self, folder: str, last: str) -> None:
        """Remove the folder of a checkpoint and its files, beginning with the file `last`."""


class DigestWriter(io.RawIOBase):
    """Passes what is written to `put`, and computes its size and digest."""

    def __init__(self, put: Callable[[memoryview], int]) -> None:
        super().__init__()
        self._put = put
        self._digest = hashlib.sha256()
        self._size_bytes = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write all of the data, or raise OSError."""
        view = memoryview(data).cast("B")
        self._digest.update(view)
        done = 0
        while done < len(view):
            done += self._put(view[done : done + _MAX_WRITE_BYTES])
        self._size_bytes += done
        return done

    def end(self) -> None:
        """Drop what is still written, from a buffer that is deleted: the descriptor may belong to another file by then."""
        self._put = len

    def receipt(self) -> Receipt:
        """Return the receipt of everything written so far."""
        return Receipt(self._size_bytes, self._digest.digest())
