"""A stand-in for the controller: a runtime folder with a lease and a wake pipe, which tests renew."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from controller.base.lease import Lease, wake_room, write_lease
from controller.slurm.configuration import installed_files

SLURM_FOLDER = Path(__file__).parents[2] / "slurm" / "plugin"
CONTROLLER_UID = 4242
"""A uid without a user; only root and this uid may release jobs that Headway holds."""


class StandIn:
    """Files that job_submit.lua and the hooks read, in `runtime_dir`, and these scripts themselves, in `scripts`.

    Invariant: Slurm's user may enter both folders. They are two because many machines let nothing be executed below /run.
    """

    def __init__(self) -> None:
        # Not below pytest's own folder, which only root may enter.
        self.runtime_dir = Path(tempfile.mkdtemp(prefix="headway-test-", dir="/run"))
        slurm = pwd.getpwnam("slurm")
        self.scripts = Path(tempfile.mkdtemp(prefix="headway-test-", dir="/var/lib"))
        for folder in (self.runtime_dir, self.scripts):
            folder.chmod(0o755)
        self.lease = self.runtime_dir / "lease"
        self.wake = self.runtime_dir / "wake"
        hooks = self.runtime_dir / "wake-hooks"
        for path in (self.wake, hooks):
            os.mkfifo(path, 0o600)
            os.chown(path, slurm.pw_uid, slurm.pw_gid)
        self.holds = self.runtime_dir / "holds"
        self.holds.mkdir(mode=0o700)
        os.chown(self.holds, slurm.pw_uid, slurm.pw_gid)
        self._pipe = os.open(self.wake, os.O_RDWR | os.O_NONBLOCK)
        self._hooks = os.open(hooks, os.O_RDWR | os.O_NONBLOCK)
        self._beat_s = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._pipe)
        os.close(self._hooks)
        shutil.rmtree(self.runtime_dir)
        shutil.rmtree(self.scripts)

    def script(self, source: str) -> Path:
        """Install a script of slurm/plugin for this runtime folder. Return its path, at which Slurm's user can run it."""
        text = (SLURM_FOLDER / source).read_text()
        path = self.scripts / Path(source).name
        path.write_text(installed_files.with_runtime_dir(text, self.runtime_dir))
        path.chmod(0o755)
        return path

    def beat(self, age_s: float = 0, **changes: Any) -> None:
        """Renew the lease; it stays fresh for longer than any test.

        Each lease has another time, as with a controller, because slurmctld identifies leases by it. Tests are faster than
        one lease per second, so a lease may have the time of a later second.
        """
        self._beat_s = max(int(time.time()), self._beat_s + 1)
        values: dict[str, Any] = {
            "time_s": self._beat_s - int(age_s),
            "stale_after_s": 300,
            "partitions": ("dl",),
            "controller_uid": CONTROLLER_UID,
            "wake_room_bytes": wake_room(self._pipe),
        }
        write_lease(self.lease, Lease(**{**values, **changes}))

    def lines(self) -> list[str]:
        """Return the lines from both pipes since the last call."""
        found = []
        for pipe in (self._pipe, self._hooks):
            with suppress(BlockingIOError):
                found += os.read(pipe, 1 << 20).decode().splitlines()
        return found

    def written_holds(self) -> set[str]:
        """Return the holds of users that were written since the last call."""
        paths = list(self.holds.iterdir())
        for path in paths:
            path.unlink()
        return {path.name for path in paths}

    def fill(self) -> None:
        """Fill the pipe: any further byte would block its writer."""
        for size in (4096, 1):
            try:
                while True:
                    os.write(self._pipe, b"x" * size)
            except BlockingIOError:
                pass
