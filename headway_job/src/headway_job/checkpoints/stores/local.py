"""Checkpoints in a folder of a file system.

No link is followed in place of the run's folder or anything in it: folders are opened without following links, and everything in
them relative to the open folder. Files and folders of another user are refused.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from contextlib import contextmanager
from typing import BinaryIO, Callable, Iterator, List, Optional

from ..errors import Damaged, Refused
from .base import DigestWriter, Receipt

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TEMPORARY = ".part"
_BUFFER = 1 << 20


class Files:
    """All calls that change the disk, so that a test can end the program between any two of them."""

    def make_folder(self, name: str, within: Optional[int]) -> None:
        """Create a folder that only its owner may enter."""
        os.mkdir(name, 0o700, dir_fd=within)

    def create(self, name: str, within: int) -> int:
        """Create a file, and return its descriptor."""
        return os.open(name, _CREATE, 0o600, dir_fd=within)

    def write(self, number: int, data: memoryview) -> int:
        """Write, and return the number of bytes written, which may be less than all."""
        return os.write(number, data)

    def sync(self, number: int) -> None:
        """Flush a file or folder to the disk."""
        os.fsync(number)

    def rename(self, old: str, new: str, within: int) -> None:
        """Rename an entry of a folder."""
        os.rename(old, new, src_dir_fd=within, dst_dir_fd=within)

    def remove_file(self, name: str, within: int) -> None:
        """Remove a file; of a link, the link itself."""
        os.unlink(name, dir_fd=within)

    def remove_folder(self, name: str, within: int) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=within)


class LocalStore:
    """A folder of a file system. Invariant: a file has its name only when it is complete and on the disk."""

    def __init__(self, path: str, files: Optional[Files] = None) -> None:
        """`path`: the run's own folder. Raises Refused if it cannot be created or opened."""
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
                f"No checkpoints can be kept in {self.where}: {error.strerror}. Give headway_job.checkpoint another folder."
            ) from error

    def folders(self) -> List[str]:
        """Return the names in the run's folder."""
        with self._root() as root:
            return sorted(os.listdir(root))

    def make(self, folder: str) -> None:
        """Create a folder for a checkpoint, unless it exists."""
        with self._root() as root:
            self._make(folder, root)
            self._files.sync(root)

    def write(self, folder: str, name: str, fill: Callable[[BinaryIO], None]) -> Receipt:
        """Write a file with what `fill` writes."""
        temporary = name + _TEMPORARY
        with self._root() as root, self._opened(folder, root) as within:
            number = self._files.create(temporary, within)
            sink = DigestWriter(lambda data: self._files.write(number, data))
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
                self._try_to_remove(temporary, within)
                raise
            self._files.sync(within)
            return sink.receipt()

    def read(self, folder: str, name: str) -> BinaryIO:
        """Open a file. Raises Damaged if it is missing or no file, Refused if it belongs to another user."""
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
            raise Damaged(f"{name} is not a regular file")
        if found.st_uid != os.geteuid():
            os.close(number)
            raise Refused(f"{name} belongs to another user")
        return os.fdopen(number, "rb")

    def has(self, folder: str, name: str) -> bool:
        """Return True if the folder has such an entry; False if the folder is missing or a link. Raises Refused as `read`."""
        try:
            with self._root() as root, self._opened(folder, root) as within:
                os.stat(name, dir_fd=within, follow_symlinks=False)
        except (FileNotFoundError, Damaged):
            return False
        return True

    def size_bytes(self, folder: str, name: str) -> Optional[int]:
        """Return the size of a file; None = there is none. Folders are opened anew, so that NFS asks its server again."""
        try:
            with self._root() as root, self._opened(folder, root) as within:
                found = os.stat(name, dir_fd=within, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def rename(self, old: str, new: str) -> None:
        """Rename the folder of a checkpoint."""
        with self._root() as root:
            self._files.rename(old, new, root)
            self._files.sync(root)

    def remove(self, folder: str, last: str) -> None:
        """Remove the folder of a checkpoint and its files. The file `last` goes first, as the rest is no checkpoint without it."""
        with self._root() as root:
            with self._opened(folder, root) as within:
                for name in sorted(os.listdir(within), key=lambda name: name != last):
                    self._files.remove_file(name, within)
            self._files.remove_folder(folder, root)

    def _make(self, name: str, within: Optional[int]) -> None:
        try:
            self._files.make_folder(name, within)
        except FileExistsError:
            pass  # another rank was first; its owner is checked when it is opened

    def _try_to_remove(self, name: str, within: int) -> None:
        try:
            self._files.remove_file(name, within)
        except OSError:
            pass  # it is removed with its folder later

    @contextmanager
    def _root(self) -> Iterator[int]:
        """Open the run's folder; anew each time, as programs close descriptors that they do not know."""
        try:
            number = os.open(self.where, _FOLDER)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise Refused(
                    f"{self.where} is a link, or not a folder. Give headway_job.checkpoint the folder itself."
                ) from error
            raise
        try:
            if os.fstat(number).st_uid != os.geteuid():
                raise Refused(
                    f"{self.where} belongs to another user. Give headway_job.checkpoint a folder of your own."
                )
            yield number
        finally:
            os.close(number)

    @contextmanager
    def _opened(self, folder: str, root: int) -> Iterator[int]:
        try:
            number = os.open(folder, _FOLDER, dir_fd=root)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise Damaged(f"{folder} is a link, or not a folder") from error
            raise
        try:
            if os.fstat(number).st_uid != os.geteuid():
                raise Refused(f"{folder} belongs to another user. Change its owner to the job's user, or remove it.")
            yield number
        finally:
            os.close(number)
