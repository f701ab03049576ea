"""Unix sockets of the Admin service: made where no other process listens, and open to exactly the users who may call."""

from __future__ import annotations

import grp
import os
from collections.abc import Callable
from pathlib import Path

from controller.base.errors import ConfigurationError
from policies.errors import ListenError
from policies.serving.runtime.listen import make_way, umask

_MAX_PATH = 107
"""Maximum length of a Unix socket's path in the kernel, in bytes."""


def group_id(name: str) -> int | None:
    """Return the number of that Unix group; None for an empty name. Raises ConfigurationError."""
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigurationError(
            f"admin_group: there is no group {name!r} on this machine; make it (groupadd --system {name}), or remove the key"
        ) from None


def bind(path: Path, mode: int, group: int | None, listen: Callable[[str], object]) -> None:
    """Make a socket at `path` with `listen` (called with its gRPC address), then open it to the users that may connect.

    A socket file that a dead process left is replaced; one that is served, or anything that is not a socket, is refused with
    a ConfigurationError. Invariant: users who may not connect afterwards cannot connect before.
    """
    _clear(path)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"{path.parent}: does not exist, or uid {os.getuid()} may not write to it; make it, or set runtime_dir"
        )
    try:
        with umask(0o177):
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
        make_way(path)
    except ListenError as error:
        raise ConfigurationError(f"{error} (is another controller running? then set another runtime_dir)") from error
