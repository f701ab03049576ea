"""Checkpoints in a folder of a file system.

Nothing is reached through a link that the job's own folder or anything below it was replaced by: folders are opened without
following links, and everything in them relative to the open folder. What belongs to another user is refused.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from contextlib import contextmanager
from typing import Any, BinaryIO, Callable, Iterator, List, NamedTuple, Optional

from ..errors import Damaged, Refused

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TEMPORARY = ".part"
_LARGEST_WRITE = 1 << 22
_BUFFER = 1 << 20


class Receipt(NamedTuple):
    """What was written: its size, and its SHA-256."""

    size_bytes: int
    digest: bytes


class Files:
    """Every call that changes the disk, so that a test can end the program between any two of them."""

    def make_folder(self, name: str, within: Optional[int]) -> None:
        """For its owner alone."""
        os.mkdir(name, 0o700, dir_fd=within)

    def create(self, name: str, within: int) -> int:
        """A new file's descriptor."""
        return os.open(name, _CREATE, 0o600, dir_fd=within)

    def write(self, number: int, data: memoryview) -> int:
        """Bytes written, which may be fewer than there are."""
        return os.write(number, data)

    def sync(self, number: int) -> None:
        """Of a file or a folder."""
        os.fsync(number)

    def rename(self, old: str, new: str, within: int) -> None:
        """Within one folder."""
        os.rename(old, new, src_dir_fd=within, dst_dir_fd=within)

    def remove_file(self, name: str, within: int) -> None:
        """A link is removed, not what it points to."""
        os.unlink(name, dir_fd=within)

    def remove_folder(self, name: str, within: int) -> None:
        """An empty one."""
        os.rmdir(name, dir_fd=within)


class Digesting(io.RawIOBase):
    """What is written goes to `put` and is counted and digested on the way."""

    def __init__(self, put: Callable[[memoryview], int]) -> None:
        super().__init__()
        self._put = put
        self._digest = hashlib.sha256()
        self._size_bytes = 0

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any) -> int:
        """All of it, or an OSError."""
        view = memoryview(data).cast("B")
        self._digest.update(view)
        done = 0
        while done < len(view):
            done += self._put(view[done : done + _LARGEST_WRITE])
        self._size_bytes += done
        return done

    def end(self) -> None:
        """Whatever still comes, from a buffer that is thrown away, goes nowhere: its descriptor may be another file's by then."""
        self._put = len

    def receipt(self) -> Receipt:
        """Of everything so far."""
        return Receipt(self._size_bytes, self._digest.digest())


class LocalStore:
    """Invariant: a file has its name only once it is whole and on the disk."""

    def __init__(self, path: str, files: Optional[Files] = None) -> None:
        """`path`: the run's own folder. Raises Refused where it cannot be had."""
        self.where = os.path.abspath(path)
        self._files = files or Files()
        try:
            os.makedirs(os.path.dirname(self.where), exist_ok=True)
            if not os.path.lexists(self.where):
                self._make(self.where, None)
            with self._root():
                pass
        except OSError as error:
            raise Refused(
                f"No checkpoints can be kept in {self.where}: {error.strerror}. Give another folder."
            ) from error

    def folders(self) -> List[str]:
        """The names in the run's folder."""
        with self._root() as root:
            return sorted(os.listdir(root))

    def make(self, folder: str) -> None:
        """A folder for a checkpoint; it may be there."""
        with self._root() as root:
            self._make(folder, root)
            self._files.sync(root)

    def write(self, folder: str, name: str, fill: Callable[[BinaryIO], None]) -> Receipt:
        """A file of what `fill` writes."""
        temporary = name + _TEMPORARY
        with self._root() as root, self._opened(folder, root) as within:
            number = self._files.create(temporary, within)
            sink = Digesting(lambda data: self._files.write(number, data))
            try:
                try:
                    with_buffer = io.BufferedWriter(sink, _BUFFER)
                    fill(with_buffer)
                    with_buffer.flush()
                    self._files.sync(number)
                finally:
                    sink.end()
                    os.close(number)
                self._files.rename(temporary, name, within)
            except BaseException:
                self._forget(temporary, within)
                raise
            self._files.sync(within)
            return sink.receipt()

    def read(self, folder: str, name: str) -> BinaryIO:
        """The file, open. Raises Damaged where it is missing or no file, Refused where it is another user's."""
        with self._root() as root, self._opened(folder, root) as within:
            try:
                number = os.open(name, _READ, dir_fd=within)
            except FileNotFoundError as error:
                raise Damaged(f"{name} is missing") from error
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise Damaged(f"{name} is a link") from error
                raise
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            os.close(number)
            raise Damaged(f"{name} is no file")
        if found.st_uid != os.geteuid():
            os.close(number)
            raise Refused(f"{name} belongs to another user")
        return os.fdopen(number, "rb")

    def has(self, folder: str, name: str) -> bool:
        """Whether the folder has such an entry; False where there is no such folder, or it is a link. Raises Refused as `read`."""
        try:
            with self._root() as root, self._opened(folder, root) as within:
                os.stat(name, dir_fd=within, follow_symlinks=False)
        except (FileNotFoundError, Damaged):
            return False
        return True

    def size_bytes(self, folder: str, name: str) -> Optional[int]:
        """Of a file; None where there is none. Folders are opened anew, which has NFS ask its server for what is in them."""
        try:
            with self._root() as root, self._opened(folder, root) as within:
                found = os.stat(name, dir_fd=within, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def rename(self, old: str, new: str) -> None:
        """A checkpoint's folder."""
        with self._root() as root:
            self._files.rename(old, new, root)
            self._files.sync(root)

    def remove(self, folder: str, last: str) -> None:
        """A checkpoint's folder with what is in it. The file `last` goes first, as without it the rest is none."""
        with self._root() as root:
            with self._opened(folder, root) as within:
                for name in sorted(os.listdir(within), key=lambda name: name != last):
                    self._files.remove_file(name, within)
            self._files.remove_folder(folder, root)

    def _make(self, name: str, within: Optional[int]) -> None:
        try:
            self._files.make_folder(name, within)
        except FileExistsError:
            pass  # another rank was first; whose it is shows when it is opened

    def _forget(self, name: str, within: int) -> None:
        try:
            self._files.remove_file(name, within)
        except OSError:
            pass  # swept with its folder later

    @contextmanager
    def _root(self) -> Iterator[int]:
        """Opened anew each time: programs close descriptors that they do not know."""
        try:
            number = os.open(self.where, _FOLDER)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise Refused(f"{self.where} is a link or no folder. Give the folder itself.") from error
            raise
        try:
            if os.fstat(number).st_uid != os.geteuid():
                raise Refused(f"{self.where} belongs to another user. Give a folder of your own.")
            yield number
        finally:
            os.close(number)

    @contextmanager
    def _opened(self, folder: str, root: int) -> Iterator[int]:
        try:
            number = os.open(folder, _FOLDER, dir_fd=root)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise Damaged(f"{folder} is a link or no folder") from error
            raise
        try:
            if os.fstat(number).st_uid != os.geteuid():
                raise Refused(f"{folder} belongs to another user. Give it back to the job's user, or remove it.")
            yield number
        finally:
            os.close(number)
