"""Checkpoints under other URLs, through fsspec if the job's Python has it.

Object stores show an object only when it is complete. In other stores a file gets its final name only when it is complete, if the
store renames in a single step. The manifest is written last and has all digests, so that no error in either can pass for a
checkpoint.
"""

from __future__ import annotations

import io
import time
from typing import Any, BinaryIO, Callable, List, Optional, Sequence, TypeVar

from ..errors import CheckpointError, Damaged, Refused
from .base import DigestWriter, Receipt
from .io_deadline import CallProgress, IoDeadline, StoreTimeout, limit_requests
from .redact import redact_error, redact_url

_Result = TypeVar("_Result")
_OBJECT_STORES = {
    "s3",
    "s3a",
    "gs",
    "gcs",
    "abfs",
    "abfss",
    "az",
    "adl",
    "oci",
    "ocilake",
    "oss",
    "obs",
    "tos",
    "swift",
    "r2",
    "memory",
}
_TEMPORARY = ".part"
_MAX_SILENCE_S = 120.0
"""Maximum time without an answer to a call, or between two parts of a file that is written (4 MiB each)."""
_PAUSES_S = (1.0, 4.0, 10.0)
"""Pauses before a call is repeated that failed at once."""
_BUFFER = 1 << 20


class RemoteStore:
    """A store behind a URL. It promises the same as LocalStore, except that it does not check for links, nor flush to a disk.

    Every call ends in bounded time, at worst with OSError, and no error has a secret in its text.
    """

    def __init__(self, url: str, max_silence_s: float = _MAX_SILENCE_S, pauses_s: Sequence[float] = _PAUSES_S) -> None:
        """Raises Refused if fsspec, or a package that it needs for this kind of URL, is not installed."""
        self.where = redact_url(url)
        self._url = url
        self._deadline = IoDeadline(max_silence_s)
        self._pauses_s = pauses_s
        try:
            import fsspec  # type: ignore[import-untyped,unused-ignore]

            fsspec.get_filesystem_class(
                url.split(":", maxsplit=1)[0]
            )  # imports: an error of these is no error of the store

            def connected(_: CallProgress) -> Any:
                return fsspec.core.url_to_fs(url.rstrip("/"), use_listings_cache=False, skip_instance_cache=True)

            self._system: Any
            self._system, self._root = self._deadline.run(connected)
        except (ImportError, ValueError) as error:
            raise Refused(
                f"Checkpoints under {self.where} need the package fsspec, and the package that it uses for such URLs (s3fs for "
                f"s3://), in the job's Python: {redact_error(error, url)}"
            ) from None
        except Exception as error:
            # Some implementations connect at once, and raise errors of their own.
            raise Refused(
                f"The store of checkpoints {self.where} cannot be reached: {redact_error(error, url)}. Start the run again "
                "when it can."
            ) from None
        limit_requests(self._system, max_silence_s)
        protocol = self._system.protocol
        self._holds_objects = bool(
            {protocol} & _OBJECT_STORES if isinstance(protocol, str) else {*protocol} & _OBJECT_STORES
        )

    def folders(self) -> List[str]:
        """Return the names in the run's folder."""

        def listed(_: CallProgress) -> Any:
            self._system.invalidate_cache()
            return self._system.ls(self._root, detail=False)

        try:
            found = self._call_repeatedly(listed)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in found)

    def make(self, folder: str) -> None:
        """Create a folder for a checkpoint, unless it exists. Object stores have no folders, and might create a bucket instead."""
        if not self._holds_objects:
            self._call(lambda _: self._system.makedirs(self._path(folder), exist_ok=True))

    def write(self, folder: str, name: str, fill: Callable[[BinaryIO], None]) -> Receipt:
        """Write a file with what `fill` writes."""
        path = self._path(folder, name)
        written_to = path if self._holds_objects else path + _TEMPORARY

        def written(progress: CallProgress) -> Receipt:
            with self._system.open(written_to, "wb") as file:

                def put(data: memoryview) -> int:
                    progress.made()
                    done = int(file.write(data))
                    progress.made()
                    return done

                sink = DigestWriter(put)
                fill(sink)  # type: ignore[arg-type]
            progress.made()
            if written_to != path:
                self._system.mv(written_to, path)
                progress.made()
            return sink.receipt()

        receipt = self._call(written)
        size_bytes = self._size_of(path)
        if size_bytes != receipt.size_bytes:
            # Some stores report success although they have not renamed the file.
            raise OSError(f"{name} has {size_bytes} bytes in the store, of {receipt.size_bytes} that were written")
        return receipt

    def read(self, folder: str, name: str) -> BinaryIO:
        """Open a file. Raises Damaged if it is missing."""
        try:
            opened = self._call_repeatedly(lambda _: self._system.open(self._path(folder, name), "rb"))
        except FileNotFoundError:
            raise Damaged(f"{name} is missing") from None
        return io.BufferedReader(_BoundedReader(opened, self._call), _BUFFER)

    def has(self, folder: str, name: str) -> bool:
        """Return True if the folder has such an entry."""
        return self.size_bytes(folder, name) is not None

    def size_bytes(self, folder: str, name: str) -> Optional[int]:
        """Return the size of a file; None = there is none."""
        try:
            return self._size_of(self._path(folder, name))
        except FileNotFoundError:
            return None

    def rename(self, old: str, new: str) -> None:
        """Rename the folder of a checkpoint. Object stores copy each object, which counts as progress."""

        def renamed(progress: CallProgress) -> None:
            if not self._holds_objects:
                self._system.mv(self._path(old), self._path(new), recursive=True)
                return
            for path in self._objects(old):
                self._system.mv(path, self._path(new) + path[len(self._path(old)) :])
                progress.made()

        self._call(renamed)

    def remove(self, folder: str, last: str) -> None:
        """Remove the folder of a checkpoint, file by file. The file `last` goes first, as the rest is no checkpoint without it."""
        if self.has(folder, last):
            self._call(lambda _: self._system.rm_file(self._path(folder, last)))

        def removed(progress: CallProgress) -> None:
            for path in self._objects(folder):
                self._system.rm_file(path)
                progress.made()
            if not self._holds_objects:
                self._system.rm(self._path(folder), recursive=True)

        try:
            self._call(removed)
        except FileNotFoundError:
            pass  # in object stores, a folder is gone with its last object

    def _objects(self, folder: str) -> List[str]:
        """Return the paths of the files in a folder, without the protocol, as fsspec has them."""
        self._system.invalidate_cache()
        root = self._path(folder)
        found = self._system.ls(root, detail=False)
        return [f"{root}/{str(path).rstrip('/').rsplit('/', 1)[-1]}" for path in found]

    def _size_of(self, path: str) -> int:
        """Return the size of a file. fsspec's `exists` is not used, as it takes any error, such as a lost connection, for a no."""

        def found(_: CallProgress) -> Any:
            self._system.invalidate_cache()
            return self._system.info(path)

        return int(self._call_repeatedly(found).get("size") or 0)

    def _call_repeatedly(self, call: Callable[[CallProgress], _Result]) -> _Result:
        """Make a call that changes nothing, and repeat it if it fails at once."""
        for pause_s in self._pauses_s:
            try:
                return self._call(call)
            except (FileNotFoundError, StoreTimeout):
                raise
            except OSError:
                time.sleep(pause_s)
        return self._call(call)

    def _call(self, call: Callable[[CallProgress], _Result]) -> _Result:
        try:
            return self._deadline.run(call)
        except CheckpointError:
            raise
        except StoreTimeout as error:
            raise StoreTimeout(f"{self.where}: {error}") from None
        except FileNotFoundError as error:
            raise FileNotFoundError(redact_error(error, self._url)) from None
        except Exception as error:
            # Each fsspec implementation raises the errors of its client. Neither their texts nor their causes are passed on
            # unchanged: they may contain the URL with its password, or signed URLs.
            raise OSError(f"{self.where}: {type(error).__name__}: {redact_error(error, self._url)}") from None

    def _path(self, *names: str) -> str:
        return "/".join((self._root, *names))


class _BoundedReader(io.RawIOBase):
    """A file of fsspec, each read of which ends in bounded time."""

    def __init__(self, file: Any, call: Callable[[Callable[[CallProgress], Any]], Any]) -> None:
        super().__init__()
        self._file = file
        self._call = call

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read at least one byte; return 0 at the end."""
        data = self._call(lambda _: self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Return the new position."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """Return the position."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close this file and fsspec's."""
        if not self.closed:
            self._file.close()
        super().close()
