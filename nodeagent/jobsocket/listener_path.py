"""The path of the job socket: created, locked, replaced when the agent that listened there has died, and removed."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodeagent.errors import SocketError
from policies.serving.runtime.user_sockets import UserListener

SOCKET_MODE = 0o666
"""Every user may connect."""
FOLDER_MODE = 0o755
_BACKLOG = 1024


@dataclass(slots=True)
class ListeningSocket:
    """The listening socket and its path.

    Invariant: only the agent that holds the lock beside the socket listens at that path; the kernel releases the lock when the
    agent dies.
    """

    path: Path
    sock: socket.socket
    lock: int

    @classmethod
    def open(cls, path: Path) -> ListeningSocket:
        """Create the folder if it is missing, replace the socket of a dead agent, and listen. Raises SocketError."""
        _require_folder(path.parent)
        lock = _lock(path)
        try:
            _remove_stale(path)
            return cls(path, _listen(path), lock)
        except BaseException:
            os.close(lock)
            raise

    def close(self) -> None:
        """Remove the socket. The file of the lock stays: it must not be removed while another agent may wait for it."""
        with suppress(OSError):
            self.path.unlink()
        self.sock.close()
        os.close(self.lock)


def _require_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE)
        folder.chmod(FOLDER_MODE)  # whatever the umask is
    except FileExistsError:
        pass
    except OSError as error:
        raise SocketError(f"{folder}: cannot be created: {error.strerror}; create it, or set job_socket") from error
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise SocketError(f"{folder}: is not a folder; remove it, or set job_socket")
    if found.st_uid not in {0, os.geteuid()} or found.st_mode & 0o022:
        raise SocketError(
            f"{folder}: other users could put their own socket there; `chown root {folder} && chmod 755 {folder}`"
        )


def _lock(path: Path) -> int:
    """Lock the file beside the socket. filelock does not serve: it follows links, which another user may have put there."""
    name = path.with_name(f"{path.name}.lock")
    try:
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SocketError(f"{name}: {error.strerror}; check owner and mode of the folder") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise SocketError(f"{path}: another agent listens there; stop it first, or set job_socket") from None
    return lock


def _remove_stale(path: Path) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SocketError(
                f"{path}: a file with this name exists, and it is not a socket; remove it, or set job_socket"
            )
        path.unlink()


def _listen(path: Path) -> socket.socket:
    sock = UserListener(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        sock.bind(str(path))
        path.chmod(SOCKET_MODE)  # no process can connect before listen()
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise SocketError(f"{path}: cannot listen there: {error}; set job_socket to a short path") from error
    return sock
