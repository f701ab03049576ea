"""The controller's sockets: which of them to use, and why one cannot be used. Nothing here waits."""

from __future__ import annotations

import errno
import os
import re
import socket
from pathlib import Path
from typing import Union

from headway_client.calls import ADVICE
from headway_client.errors import HeadwayError, InvalidRequestError, NotPermittedError, UnavailableError
from headway_client.wire.call_end import CallEnd
from headway_client.words import Reason

ADMIN, STATUS = "admin.sock", "status.sock"
DEFAULT_SETTINGS = Path("/etc/headway/controller.toml")
SETTINGS_VARIABLE = "HEADWAY_CONFIG"
"""Environment variable that names the settings in place of DEFAULT_SETTINGS, as for the command line."""
DEFAULT_FOLDER = Path("/run/headway")

_RUNTIME_DIR = re.compile(r"""^runtime_dir\s*=\s*(?:"([^"\\]*)"|'([^']*)')\s*(?:#.*)?$""", re.MULTILINE)
_ANY_RUNTIME_DIR = re.compile(r"""^\s*["']?runtime_dir\b""", re.MULTILINE)

_LONGEST = 107
_EFFECTIVE = os.access in os.supports_effective_ids

PathLike = Union[str, "os.PathLike[str]"]


class Address:
    """Where the controller listens. Invariant: a call that only admin.sock takes is never sent to status.sock."""

    def __init__(self, given: PathLike | None = None, settings: Path | None = None) -> None:
        """`given` is a socket, or None: the sockets in `runtime_dir` of the controller's settings, as the command line finds them.

        `settings` None: those of $HEADWAY_CONFIG, else DEFAULT_SETTINGS. Raises InvalidRequestError when the settings cannot be
        understood.
        """
        self._given = None if given is None else Path(given)
        self._folder = DEFAULT_FOLDER if given is not None else _runtime_dir(settings or _usual_settings())

    def candidates(self, *, admin: bool) -> list[Path]:
        """Return the sockets to try, in order: admin.sock, which takes every call, and for the others status.sock."""
        if self._given is not None:
            return [self._given]
        return [self._folder / ADMIN] if admin else [self._folder / ADMIN, self._folder / STATUS]

    def find(self, *, admin: bool) -> Path:
        """Return the first socket that this user may open, else the last one. Nothing is connected: connections are counted.

        Raises UnavailableError for a path that no socket can have.
        """
        candidates = self.candidates(admin=admin)
        if len(os.fsencode(candidates[-1].absolute())) > _LONGEST:
            raise _failure(
                candidates[-1], OSError(errno.ENAMETOOLONG, "the path is too long for a socket"), admin=admin
            )
        usable = (path for path in candidates if os.access(path, os.R_OK | os.W_OK, effective_ids=_EFFECTIVE))
        return next(usable, candidates[-1])


def failure(path: Path, end: CallEnd, *, admin: bool) -> HeadwayError:
    """Return the error of a call through that socket that no controller has answered. Connecting says more than gRPC does."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.setblocking(False)
            connection.connect(str(path))
        except OSError as problem:
            return _failure(path, problem, admin=admin)
    return UnavailableError(
        f"the controller at {path} has ended, or closed the connection before its answer was complete; it also closes connections "
        f"of a user who has too many: {end.text} ({ADVICE})"
    )


def _failure(path: Path, problem: OSError, *, admin: bool) -> HeadwayError:
    if isinstance(problem, PermissionError):
        if admin:
            return NotPermittedError(
                f"{path}: only root and the controller's user may make this call", Reason.ADMIN_ONLY
            )
        return NotPermittedError(
            f"{path}: only root, the controller's user and the group of admin_group may make calls"
        )
    if isinstance(problem, BlockingIOError):
        return UnavailableError(f"the controller at {path} accepts no connections at the moment ({ADVICE})")
    return UnavailableError(f"no controller answers at {path}: {problem.strerror or problem} ({ADVICE})")


def _usual_settings() -> Path:
    return Path(os.environ.get(SETTINGS_VARIABLE) or DEFAULT_SETTINGS)


def _runtime_dir(settings: Path) -> Path:
    """Return the runtime folder from one line of the settings: Python reads TOML only since 3.11."""
    try:
        text = settings.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return DEFAULT_FOLDER
    found = _RUNTIME_DIR.search(text)
    if found is not None:
        return Path(found[1] if found[1] is not None else found[2])
    if _ANY_RUNTIME_DIR.search(text):
        raise InvalidRequestError(f"{settings}: the line with runtime_dir is not understood; give socket=")
    return DEFAULT_FOLDER
