"""Device minors of the GPUs, read from the driver by a child process under a deadline."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
import structlog

from nodeagent.telemetry.driver_files import FILES
from nodeagent.telemetry.topology import gpu_addresses

log = structlog.get_logger(__name__)

_CHILD = (sys.executable, "-P", "-m", "nodeagent.telemetry.driver_files")
_DEADLINE_S = 5.0
_decoder = msgspec.json.Decoder(dict[str, Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)]])


class DriverMinors:
    """N of /dev/nvidiaN of each GPU.

    Invariant: `refresh` returns within its deadline, whatever the driver does. There is at most one child; while one that was
    killed is still inside the driver, where no signal reaches it, no other is started.
    """

    def __init__(self, root: Path = Path("/"), deadline_s: float = _DEADLINE_S, child: Sequence[str] = _CHILD) -> None:
        self.known: Mapping[str, int] = {}
        """Minor by PCI address, as last read; empty = none could be read yet."""
        self._root = root
        self._deadline_s = deadline_s
        self._argv = (*child, str(root))
        self._child: Process | None = None
        self._silent = False
        """The last reading failed, which was logged."""

    async def refresh(self) -> None:
        """Read the minors again. Those that are known stay when the driver does not answer. Raises nothing."""
        if not gpu_addresses(self._root) or not (self._root / FILES).is_dir():
            self.known = {}
            return
        if self._child is not None and self._child.returncode is None:
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                self._child = await asyncio.create_subprocess_exec(*self._argv, stdout=PIPE)
                said, _ = await self._child.communicate()
            self.known = _decoder.decode(said)
            self._silent = False
        except Exception as error:  # noqa: BLE001 - a bug costs the numbers of GPUs, and not the stream
            self._log_once(
                f"no answer within {self._deadline_s:g} s" if isinstance(error, TimeoutError) else str(error)
            )
        finally:
            self._kill()

    def _kill(self) -> None:
        if self._child is not None and self._child.returncode is None:
            with suppress(ProcessLookupError):
                self._child.kill()

    def _log_once(self, problem: str) -> None:
        if not self._silent:
            log.warning(
                "gpu_driver_silent", problem=problem, effect="the numbers of GPUs in the topology are as last known"
            )
        self._silent = True
