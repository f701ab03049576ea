"""Runs every target in a process of its own. A process that dies or hangs is a fault; the next process starts after that input."""

from __future__ import annotations

import mmap
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from tests.fuzz.engine import Fault, Tally, be_quiet, input_of, run
from tests.fuzz.target import Target

_STUCK_S = 120.0
"""A process that begins no further input within this time is killed."""
_SETTLE_S = 0.2
_MOST_DEATHS = 20
_NUMBER_BYTES = 8


def run_all(
    targets: Sequence[Target], runs: dict[str, int], seed: int, processes: int, on_done: Callable[[Tally], None]
) -> list[Tally]:
    """Run the targets, `processes` at the same time; `on_done` is called with each tally."""

    def one(target: Target) -> Tally:
        tally = run_apart(target, runs[target.name], seed)
        on_done(tally)
        return tally

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(one, targets))


def run_apart(target: Target, runs: int, seed: int) -> Tally:
    """Run one target in another process, and in a further one after each input that has ended a process."""
    whole, begin = Tally(target.name), 0
    for _ in range(_MOST_DEATHS):
        reached = mmap.mmap(-1, _NUMBER_BYTES)
        receiving, sending = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=_work, args=(target, range(begin, runs), seed, reached, sending)
        )
        process.start()
        sending.close()
        tally = _result(process, receiving, reached)
        number = _number(reached)
        process.join()
        if tally is not None:
            _add(whole, tally)
            return whole
        how = f"signal {-process.exitcode}" if (process.exitcode or 0) < 0 else f"exit {process.exitcode}"
        kind = "hang" if how == "signal 9" else "crash"
        whole.count(
            Fault(target.name, number, kind, f"process {how}", input_of(target, tuple(target.corpus()), seed, number))
        )
        whole.runs += number + 1 - begin
        begin = number + 1
    return whole


def _work(target: Target, numbers: range, seed: int, reached: mmap.mmap, sending: Connection) -> None:
    be_quiet()
    sending.send(run(target, numbers, seed, lambda number: _note(reached, number)))
    sending.close()


def _result(process: BaseProcess, receiving: Connection, reached: mmap.mmap) -> Tally | None:
    """Return the tally; None when the process has ended without one, or was killed because it was stuck."""
    last, since_s = -1, time.monotonic()
    while True:
        if receiving.poll(_SETTLE_S):
            try:
                found: Tally = receiving.recv()
            except EOFError:
                return None
            return found
        number = _number(reached)
        if number != last:
            last, since_s = number, time.monotonic()
        elif time.monotonic() - since_s > _STUCK_S:
            process.kill()
            return None


def _note(reached: mmap.mmap, number: int) -> None:
    reached[:] = number.to_bytes(_NUMBER_BYTES, "big")


def _number(reached: mmap.mmap) -> int:
    return int.from_bytes(reached[:], "big")


def _add(whole: Tally, tally: Tally) -> None:
    whole.runs += tally.runs
    whole.cpu_s += tally.cpu_s
    whole.outcomes += tally.outcomes
    whole.grown_bytes = max(whole.grown_bytes, tally.grown_bytes)
    whole.skipped = tally.skipped
    for key, fault in tally.faults.items():
        whole.faults.setdefault(key, fault)
