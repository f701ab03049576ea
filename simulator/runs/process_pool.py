"""The same work for several names at once, each in a process of its own, as many as there are cores.

Not concurrent.futures.ProcessPoolExecutor: that waits for the other processes when one fails, does not say which task's process
died, and pickles the work; here the others are killed at once, the error names the task, and the work is inherited by fork.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from policies.errors import PolicyError
from simulator.errors import SettingError, SimulatorError
from simulator.runs.progress import Tell

T = TypeVar("T")
Work = Callable[[str, Tell], T]
"""Done for one name; tells how far it is."""
LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class _Failed:
    """A user's error, in its own words."""

    text: str


def in_parallel(
    names: Sequence[str],
    work: Work[T],
    look: Callable[[str, float], None],
    processes: int | None = None,
    *,
    outlast_sigterm: bool = False,
) -> list[T]:
    """What the work gives for each name, in that order; `look` is told how far each is. Raises SimulatorError.

    Processes are forked: they share what the caller has read, and nothing is sent to them. Whatever ends this, they end too.
    `outlast_sigterm` is for callers who heed a SIGTERM later, where Slurm or systemd sends it to all processes at once.
    """
    return _Crew(names, work, look, processes or os.cpu_count() or 1, outlast_sigterm).results()


class _Crew(Generic[T]):
    """Invariant: `_at_work` are the processes that run, by the end on which they tell; the names before `_next` have begun."""

    def __init__(
        self, names: Sequence[str], work: Work[T], look: Callable[[str, float], None], processes: int, outlast: bool
    ) -> None:
        self._outlast = outlast
        self._names = names
        self._work = work
        self._look = look
        self._processes = processes
        self._context = multiprocessing.get_context("fork")
        self._next = 0
        self._at_work: dict[Connection, tuple[int, BaseProcess]] = {}
        self._results: dict[int, T] = {}

    def results(self) -> list[T]:
        """Do everything."""
        try:
            while len(self._results) < len(self._names):
                while self._next < len(self._names) and len(self._at_work) < self._processes:
                    self._begin()
                for ready in wait(list(self._at_work), LOOK_EVERY_S):
                    assert isinstance(ready, Connection)
                    self._hear(ready)
        finally:
            for _, process in self._at_work.values():
                process.kill()
                process.join()
        return [self._results[place] for place in range(len(self._names))]

    def _begin(self) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        name = self._names[self._next]
        process = self._context.Process(target=_do, args=(name, self._work, theirs, self._outlast), daemon=True)
        process.start()
        theirs.close()
        self._at_work[ours] = self._next, process
        self._next += 1

    def _hear(self, ready: Connection) -> None:
        place, process = self._at_work[ready]
        name = self._names[place]
        try:
            said: Any = ready.recv()
        except EOFError:
            process.join()
            raise SettingError(
                f"the process of {name} ended ({process.exitcode}) before its run did; there may be too little memory, "
                "take fewer policies at once, or --limit"
            ) from None
        if isinstance(said, float):
            self._look(name, said)
            return
        if isinstance(said, _Failed):
            raise SettingError(f"{name}: {said.text}")
        self._results[place] = said[0]
        self._look(name, 1.0)
        del self._at_work[ready]
        process.join()


def _do(name: str, work: Work[Any], tell: Connection, outlast: bool) -> None:
    """In a process: do it, and send what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if outlast else signal.SIG_DFL)
    _take_one_core()
    with suppress(BrokenPipeError):
        try:
            tell.send((work(name, tell.send),))
        except (SimulatorError, PolicyError) as error:
            tell.send(_Failed(str(error)))


def _take_one_core() -> None:
    """As there is a process for every core, threads of a learned policy's arithmetic would only wait for each other."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
