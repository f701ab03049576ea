"""The same work for several names at once, each in a process of its own, as many as there are cores for this process.

Not concurrent.futures.ProcessPoolExecutor: that waits for the other processes when one fails, does not say which task's process
died, and pickles the work; here the others are killed at once, the error names the task, and the work is inherited by fork.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from policies.errors import PolicyError
from simulator.errors import SettingError, SimulatorError
from simulator.runs.progress import OnProgress

T = TypeVar("T")
Work = Callable[[str, OnProgress], T]
"""The work for one name; it calls its second argument with the share that is done."""
WAKE_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class _Failed:
    """The message of an error that the user can correct."""

    text: str


def in_parallel(
    names: Sequence[str],
    work: Work[T],
    on_progress: Callable[[str, float], None],
    processes: int | None = None,
    *,
    outlast_sigterm: bool = False,
) -> list[T]:
    """Do the work for each name; return the results in the order of the names. Raises SimulatorError.

    `on_progress` is called with a name and the share of its work that is done. Processes are forked: they share what the caller
    has read, and nothing is sent to them. However this function ends, they end too. `outlast_sigterm` is for callers that handle
    a SIGTERM later: Slurm and systemd send it to all processes at once.
    """
    return _Pool(names, work, on_progress, processes or len(os.sched_getaffinity(0)), outlast_sigterm).results()


def total_of(names: Iterable[str], on_progress: OnProgress) -> Callable[[str, float], None]:
    """Return an `on_progress` of `in_parallel` that calls the given one with the mean share of all names."""
    shares = dict.fromkeys(names, 0.0)

    def add(name: str, share: float) -> None:
        shares[name] = share
        on_progress(sum(shares.values()) / len(shares))

    return add


class _Pool(Generic[T]):
    """The processes of one call.

    Invariant: `_running` has the running processes by our end of their pipe; the names before `_next` have begun.
    """

    def __init__(
        self,
        names: Sequence[str],
        work: Work[T],
        on_progress: Callable[[str, float], None],
        processes: int,
        outlast: bool,
    ) -> None:
        self._outlast = outlast
        self._names = names
        self._work = work
        self._on_progress = on_progress
        self._processes = processes
        self._context = multiprocessing.get_context("fork")
        self._next = 0
        self._running: dict[Connection, tuple[int, BaseProcess]] = {}
        self._results: dict[int, T] = {}

    def results(self) -> list[T]:
        """Start processes as cores come free, and collect what they send."""
        try:
            while len(self._results) < len(self._names):
                while self._next < len(self._names) and len(self._running) < self._processes:
                    self._begin()
                for ready in wait(list(self._running), WAKE_EVERY_S):
                    assert isinstance(ready, Connection)
                    self._receive(ready)
        finally:
            for _, process in self._running.values():
                process.kill()
                process.join()
        return [self._results[place] for place in range(len(self._names))]

    def _begin(self) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        name = self._names[self._next]
        process = self._context.Process(target=_do, args=(name, self._work, theirs, self._outlast), daemon=True)
        with _no_collection():
            process.start()
        theirs.close()
        self._running[ours] = self._next, process
        self._next += 1

    def _receive(self, ready: Connection) -> None:
        place, process = self._running[ready]
        name = self._names[place]
        try:
            message: Any = ready.recv()
        except EOFError:
            process.join()
            raise SettingError(_why_ended(name, process.exitcode)) from None
        if isinstance(message, float):
            self._on_progress(name, message)
            return
        if isinstance(message, _Failed):
            raise SettingError(f"{name}: {message.text}")
        self._results[place] = message[0]
        self._on_progress(name, 1.0)
        del self._running[ready]
        process.join()


def _why_ended(name: str, exit_code: int | None) -> str:
    """Return why a process ended before its run did: a signal, as where memory is short, or an error of the program."""
    if exit_code is not None and exit_code < 0:
        return (
            f"the process of {name} was ended by signal {-exit_code} before its run was over, perhaps for lack of memory; "
            "give fewer policies at once, or --limit"
        )
    return f"the process of {name} failed with an unexpected error ({exit_code}); its traceback is on standard error"


def _do(name: str, work: Work[Any], pipe: Connection, outlast: bool) -> None:
    """Run in the child process: do the work, and send its progress and its result."""
    # Garbage of the caller is not finalized here: the end of a gRPC channel would wait for a thread that only the caller has.
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if outlast else signal.SIG_DFL)
    _take_one_core()
    with suppress(BrokenPipeError):
        try:
            pipe.send((work(name, pipe.send),))
        except (SimulatorError, PolicyError) as error:
            pipe.send(_Failed(str(error)))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from running."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _take_one_core() -> None:
    """Use one thread for arithmetic: with a process for every core, more threads would only wait for each other."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
