"""The training process as the server sees it: it is started, looked at, and killed with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from policies.learned.dl2.learning.progress import Progress
from policies.learned.dl2.learning.settings import LearnSettings

LOG = "log"
MODULE = "policies.learned.dl2.learning.attempt"
"""The program of an attempt."""


class Attempt(Protocol):
    """An attempt under way."""

    def exit_code(self) -> int | None:
        """Return its exit code; a negative one is a signal, and None means that it goes on."""

    def kill(self) -> None:
        """End it at once, and wait for its end."""


StartAttempt = Callable[[Path, LearnSettings, Path, Progress], Attempt]
"""Starts an attempt in a folder, from settings, the history's file and the attempts so far. Raises OSError."""


class AttemptProcess:
    """A process of its own: it shares no interpreter with the decisions, and ends when the server does, however that ends."""

    def __init__(self, folder: Path, settings: LearnSettings, history: Path, progress: Progress) -> None:
        """Start it. Call this from a thread that lives as long as the server: the kernel kills the process with that thread.

        Raises OSError.
        """
        argv = [sys.executable, "-P", "-m", MODULE]
        numbers = {
            "parent": os.getpid(),
            "memory-mib": settings.memory_mib,
            "seed": progress.attempts,
            "compared": progress.compared,
            "rounds": settings.rounds,
            "oldest": max(time.time() - settings.limits.age_s, 0.0),  # a negative number may look like an option
        }
        argv += [text for name, value in numbers.items() for text in (f"--{name}", str(value))]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        # Its messages to systemd would be taken for the server's.
        env = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        with (folder / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                [*argv, "--history", str(history)],
                cwd=folder,
                env={**env, **threads},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )

    def exit_code(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """End the process and those of its group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
