"""Checkpoints under any other URL, through fsspec where the job's Python has it.

Object stores show an object once it is whole, whatever name it is written under. Elsewhere a file has its name only once it is
whole, as far as the store's own renaming is one step. The manifest comes last and has every digest, so that what goes wrong with
either cannot pass for a checkpoint.
"""

from __future__ import annotations

import io
import time
from typing import Any, BinaryIO, Callable, List, Optional, Sequence, TypeVar

from ..errors import CheckpointError, Damaged, Refused
from .io_deadline import Heard, Patience, Silent, limit_requests
from .local import Digesting, Receipt
from .redact import address, told

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
_QUIET_S = 120.0
"""Longest that a store says nothing while it is asked for something, or between two pieces of what is written (4 MiB each)."""
_PAUSES_S = (1.0, 4.0, 10.0)
"""Before it is asked again, where it answers at once that it is not there."""
_BUFFER = 1 << 20


class RemoteStore:
    """The same promises as LocalStore's but for two: no links are looked for, and the disk is the far side's business.

    Every call ends within bounds, with OSError at the worst, and no error of it has a secret in its text.
    """

    def __init__(self, url: str, quiet_s: float = _QUIET_S, pauses_s: Sequence[float] = _PAUSES_S) -> None:
        """Raises Refused where fsspec, or what it needs for this kind of URL, is not installed."""
        self.where = address(url)
        self._url = url
        self._patience = Patience(quiet_s)
        self._pauses_s = pauses_s
        try:
            import fsspec  # type: ignore[import-untyped,unused-ignore]

            fsspec.get_filesystem_class(url.split(":", maxsplit=1)[0])  # imports, which no store is to blame for

            def connected(_: Heard) -> Any:
                return fsspec.core.url_to_fs(url.rstrip("/"), use_listings_cache=False, skip_instance_cache=True)

            self._system: Any
            self._system, self._root = self._patience.wait_for(connected)
        except (ImportError, ValueError) as error:
            raise Refused(
                f"Checkpoints under {self.where} need the package fsspec and its part for such URLs in the job's Python: "
                f"{told(error, url)}"
            ) from None
        except Exception as error:
            # Some kinds connect at once; what they raise then is theirs.
            raise Refused(f"{self.where} cannot be reached: {told(error, url)}. Start again when it can.") from None
        limit_requests(self._system, quiet_s)
        protocol = self._system.protocol
        self._holds_objects = bool(
            {protocol} & _OBJECT_STORES if isinstance(protocol, str) else {*protocol} & _OBJECT_STORES
        )

    def folders(self) -> List[str]:
        """The names in the run's folder."""

        def listed(_: Heard) -> Any:
            self._system.invalidate_cache()
            return self._system.ls(self._root, detail=False)

        try:
            found = self._look(listed)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in found)

    def make(self, folder: str) -> None:
        """A folder for a checkpoint; it may be there. Object stores have none, and asking for one may make a bucket."""
        if not self._holds_objects:
            self._ask(lambda _: self._system.makedirs(self._path(folder), exist_ok=True))

    def write(self, folder: str, name: str, fill: Callable[[BinaryIO], None]) -> Receipt:
        """A file of what `fill` writes."""
        path = self._path(folder, name)
        written_to = path if self._holds_objects else path + _TEMPORARY

        def written(heard: Heard) -> Receipt:
            with self._system.open(written_to, "wb") as file:

                def put(data: memoryview) -> int:
                    heard.now()
                    done = int(file.write(data))
                    heard.now()
                    return done

                sink = Digesting(put)
                fill(sink)  # type: ignore[arg-type]
            heard.now()
            if written_to != path:
                self._system.mv(written_to, path)
                heard.now()
            return sink.receipt()

        receipt = self._ask(written)
        size_bytes = self._size_of(path)
        if size_bytes != receipt.size_bytes:
            # Some stores say that they have renamed a file and have not.
            raise OSError(f"{name} has {size_bytes} bytes there, of {receipt.size_bytes}")
        return receipt

    def read(self, folder: str, name: str) -> BinaryIO:
        """The file, open. Raises Damaged where it is missing."""
        try:
            opened = self._look(lambda _: self._system.open(self._path(folder, name), "rb"))
        except FileNotFoundError:
            raise Damaged(f"{name} is missing") from None
        return io.BufferedReader(_Reading(opened, self._ask), _BUFFER)

    def has(self, folder: str, name: str) -> bool:
        """Whether the folder has such an entry."""
        return self.size_bytes(folder, name) is not None

    def size_bytes(self, folder: str, name: str) -> Optional[int]:
        """Of a file; None where there is none."""
        try:
            return self._size_of(self._path(folder, name))
        except FileNotFoundError:
            return None

    def rename(self, old: str, new: str) -> None:
        """A checkpoint's folder. Object stores copy each object, so each that is done is heard of."""

        def renamed(heard: Heard) -> None:
            if not self._holds_objects:
                self._system.mv(self._path(old), self._path(new), recursive=True)
                return
            for path in self._objects(old):
                self._system.mv(path, self._path(new) + path[len(self._path(old)) :])
                heard.now()

        self._ask(renamed)

    def remove(self, folder: str, last: str) -> None:
        """A checkpoint's folder with what is in it, file by file. The file `last` goes first, as without it the rest is none."""
        if self.has(folder, last):
            self._ask(lambda _: self._system.rm_file(self._path(folder, last)))

        def removed(heard: Heard) -> None:
            for path in self._objects(folder):
                self._system.rm_file(path)
                heard.now()
            if not self._holds_objects:
                self._system.rm(self._path(folder), recursive=True)

        try:
            self._ask(removed)
        except FileNotFoundError:
            pass  # folders of object stores are gone with the last object

    def _objects(self, folder: str) -> List[str]:
        """The paths of the files in a folder, without the protocol, as fsspec gives them."""
        self._system.invalidate_cache()
        root = self._path(folder)
        found = self._system.ls(root, detail=False)
        return [f"{root}/{str(path).rstrip('/').rsplit('/', 1)[-1]}" for path in found]

    def _size_of(self, path: str) -> int:
        """Not `exists`, for which fsspec takes any error, such as a store that is away, as a no."""

        def found(_: Heard) -> Any:
            self._system.invalidate_cache()
            return self._system.info(path)

        return int(self._look(found).get("size") or 0)

    def _look(self, call: Callable[[Heard], _Result]) -> _Result:
        """What changes nothing is asked for again, where the store answers that it is not there."""
        for pause_s in self._pauses_s:
            try:
                return self._ask(call)
            except (FileNotFoundError, Silent):
                raise
            except OSError:
                time.sleep(pause_s)
        return self._ask(call)

    def _ask(self, call: Callable[[Heard], _Result]) -> _Result:
        try:
            return self._patience.wait_for(call)
        except CheckpointError:
            raise
        except Silent as error:
            raise Silent(f"{self.where}: {error}") from None
        except FileNotFoundError as error:
            raise FileNotFoundError(told(error, self._url)) from None
        except Exception as error:
            # Each fsspec implementation raises what its client does. Neither their texts nor what they stem from are passed on as
            # they are: they may have the URL with its password, or signed ones.
            raise OSError(f"{self.where}: {type(error).__name__}: {told(error, self._url)}") from None

    def _path(self, *names: str) -> str:
        return "/".join((self._root, *names))


class _Reading(io.RawIOBase):
    """A file of fsspec's whose reads end within bounds."""

    def __init__(self, file: Any, ask: Callable[[Callable[[Heard], Any]], Any]) -> None:
        super().__init__()
        self._file = file
        self._ask = ask

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """At least one byte, or 0 at the end."""
        data = self._ask(lambda _: self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """The new place."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """The place."""
        return int(self._file.tell())

    def close(self) -> None:
        """Of ours; what fsspec holds goes with it."""
        if not self.closed:
            self._file.close()
        super().close()
