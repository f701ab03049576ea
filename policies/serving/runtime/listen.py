"""Listening addresses: a Unix socket for this user and group only, or a port of loopback."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc.aio

from policies.errors import ListenError
from policies.serving.runtime.address import Address

SOCKET_MODE = 0o660
"""Mode of the socket: owner and group may write to it, and so ask for decisions."""


def bind(server: grpc.aio.Server, address: Address) -> Address:
    """Make the server listen at the address once it starts. Returns the address (with the real port in place of 0).

    A socket file that a dead server left is replaced. Raises ListenError when another server listens there.
    """
    if address.path is None:
        try:
            port = server.add_insecure_port(address.target)
        except RuntimeError as error:
            raise ListenError(
                f"{address}: cannot listen there: {error}; end the program that listens there, or choose another port"
            ) from error
        return Address(host=address.host, port=port)
    make_way(address.path)
    with umask(0o777 & ~SOCKET_MODE):
        try:
            server.add_insecure_port(address.target)
        except RuntimeError as error:
            raise ListenError(f"{address}: cannot listen there: {error}; check owner and mode of the folder") from error
    return address


async def end(server: grpc.aio.Server, grace_s: float) -> None:
    """Stop a server; calls in flight have at most that long. It also stops when this is cut off half-way.

    gRPC's own `stop` would then keep the server's files and threads for as long as the process lives.
    """
    try:
        await server.stop(grace_s)
    except BaseException:
        await server.stop(None)
        raise


def make_way(path: Path) -> None:
    """Remove an old socket of that name on which no server listens. Raises ListenError."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise ListenError(
                f"unix://{path}: there is no folder {path.parent}; make it, or correct the path"
            ) from None
        return
    except OSError as error:
        raise ListenError(f"unix://{path}: {error.strerror}; check the folders on the way") from error
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"unix://{path}: there is a file of that name that is not a socket; choose another path")
    if _is_live(path):
        raise ListenError(f"unix://{path}: another server listens there; end it first, or choose another path")
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ListenError(f"unix://{path}: cannot replace the stale socket: {error.strerror}") from error


def _is_live(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # a full backlog, or no right to connect: assume that a server is there
    return True


def remove(path: Path) -> None:
    """Remove our own socket, on which this program still listens; it may be gone already."""
    with suppress(OSError):
        path.unlink()


@dataclass(frozen=True, slots=True)
class OwnSocket:
    """A socket file that this program has made, and may stop listening on before it removes the file."""

    path: Path
    identity: tuple[int, int, int]
    """Device, inode and time of its making: the number of an inode is given again to the next file."""

    @classmethod
    def at(cls, path: Path) -> Self:
        """Return the socket that has just been made there. Raises OSError."""
        return cls(path, _identity(path))

    def remove(self) -> None:
        """Remove the socket, unless it is gone or another server has made its own there."""
        with suppress(OSError):
            if _identity(self.path) == self.identity:
                self.path.unlink()


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Clear these mode bits of files and sockets that are made inside the `with` block."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
