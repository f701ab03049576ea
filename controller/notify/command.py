"""A program of the site that gets each notification on its standard input."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.notify.message import Notification
from controller.notify.outbox import DeliveryError

_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Command:
    """One program. Nothing of a job is in its arguments or its environment: names that users choose are on standard input only."""

    path: Path
    limit_s: float

    def __call__(self, notification: Notification) -> None:
        """Run it to its end; when it takes too long, it is killed with its session. Raises DeliveryError."""
        try:
            process = subprocess.Popen(
                (str(self.path),),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise DeliveryError(f"{self.path}: cannot be run: {error}") from error
        with process:
            try:
                process.communicate(notification.body(), self.limit_s)
            except subprocess.TimeoutExpired:
                raise DeliveryError(f"{self.path}: took longer than {self.limit_s:g} s, and was killed") from None
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != 0:
            raise DeliveryError(f"{self.path}: ended with status {process.returncode}")


def require_command(path: Path) -> None:
    """Check that only root or the controller's user can change the program. Raises ConfigurationError."""
    try:
        facts = path.stat()
    except OSError as error:
        raise ConfigurationError(f"notify_command: {path}: {error.strerror}; name an existing program") from error
    if not path.is_absolute() or not stat.S_ISREG(facts.st_mode) or not os.access(path, os.X_OK):
        raise ConfigurationError(f"notify_command: {path}: must be the absolute path of a program that can be executed")
    if facts.st_uid not in {0, os.geteuid()} or facts.st_mode & 0o022:
        raise ConfigurationError(
            f"notify_command: {path}: must belong to root or to the controller's user, and only its owner may write to it "
            f"(chown root {path}; chmod go-w {path})"
        )
