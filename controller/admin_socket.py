"""Unix sockets of the Admin service: claimed when nobody listens there, and open to exactly those who may ask."""

from __future__ import annotations

import grp
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from controller.errors import ConfigurationError

_MAX_PATH = 107
"""Bytes that the kernel takes for the path of a Unix socket."""
_PROBE_S = 1.0


def group_id(name: str) -> int | None:
    """Number of that Unix group; None for no name. Raises ConfigurationError."""
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigurationError(
            f"admin_group: there is no group {name!r} on this machine; make it (groupadd --system {name}), or leave the key out"
        ) from None


def listens(path: Path) -> bool:
    """Whether a process accepts connections there."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # too busy to answer, or not ours to ask: somebody is there
            return True
        return True


def bind(path: Path, mode: int, group: int | None, listen: Callable[[str], object]) -> None:
    """Make a socket at `path` with `listen` (called with its gRPC address), then open it to those who may connect.

    A socket file that a dead process left is replaced; one that is served, or anything that is no socket, is refused with a
    ConfigurationError. Invariant: at no moment can anybody connect who could not afterwards.
    """
    _clear(path)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"{path.parent}: is not there, or uid {os.getuid()} may not write it; make it, or set runtime_dir"
        )
    try:
        with _umask(0o177):
            listen(f"unix:{path}")
        if group is not None:
            os.chown(path, -1, group, follow_symlinks=False)
        path.chmod(mode)
    except (OSError, RuntimeError) as error:
        raise ConfigurationError(
            f"{path}: the admin socket cannot be made: {error}; check the owner of the folder, and that admin_group has the "
            "controller's user as a member"
        ) from error


def _clear(path: Path) -> None:
    if len(os.fsencode(path)) > _MAX_PATH:
        raise ConfigurationError(
            f"{path}: longer than the {_MAX_PATH} bytes that a socket's path may have; set runtime_dir"
        )
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be looked at: {error}; check the owner of the folder") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigurationError(f"{path}: is there and is no socket; remove it")
    if listens(path):
        raise ConfigurationError(
            f"{path}: another controller serves it; stop that one first, or set another runtime_dir"
        )
    path.unlink(missing_ok=True)


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
