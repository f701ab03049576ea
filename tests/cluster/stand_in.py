"""A stand-in for the controller as Slurm's side sees it: a runtime folder with a lease and a wake pipe, beaten by hand."""

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
"""Nobody on this machine; only root and this uid may release what Headway holds."""


class StandIn:
    """Where job_submit.lua and the hooks look. Invariant: everything lies below `runtime_dir`, which Slurm's user may enter."""

    def __init__(self) -> None:
        # Not below pytest's own folder, which only root may enter.
        self.runtime_dir = Path(tempfile.mkdtemp(prefix="headway-test-", dir="/run"))
        slurm = pwd.getpwnam("slurm")
        self.runtime_dir.chmod(0o755)
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

    def script(self, source: str) -> Path:
        """A script of slurm/ for this runtime folder, where Slurm's user can run it."""
        text = (SLURM_FOLDER / source).read_text()
        path = self.runtime_dir / Path(source).name
        path.write_text(installed_files.with_runtime_dir(text, self.runtime_dir))
        path.chmod(0o755)
        return path

    def beat(self, age_s: float = 0, **changes: Any) -> None:
        """Renew the lease; it stays fresh for longer than any test.

        No two have the same time, as the controller's have not: by it slurmctld tells them apart. Tests are quicker than
        that, so a lease may be of the next second.
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
        """What came through both pipes since the last call."""
        found = []
        for pipe in (self._pipe, self._hooks):
            with suppress(BlockingIOError):
                found += os.read(pipe, 1 << 20).decode().splitlines()
        return found

    def written_holds(self) -> set[str]:
        """Holds of users that lie there since the last call."""
        paths = list(self.holds.iterdir())
        for path in paths:
            path.unlink()
        return {path.name for path in paths}

    def fill(self) -> None:
        """To the brim: any further byte would block its writer."""
        for size in (4096, 1):
            try:
                while True:
                    os.write(self._pipe, b"x" * size)
            except BlockingIOError:
                pass
