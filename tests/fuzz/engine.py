"""Runs a target with the inputs of one seed, counts the outcomes, and keeps the first input of each kind of fault."""

from __future__ import annotations

import gc
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.fuzz.mutate import mutated
from tests.fuzz.oracle import Verdict, judge
from tests.fuzz.target import Target

KEPT_GROWTH_BYTES = 128 << 20
"""Largest growth of memory after a target's first readings, as caches are bounded."""
_FIRST_SHARE = 0.2
_SHRINK_TRIES = 300


@dataclass(frozen=True)
class Fault:
    """A fault, and the input that shows it."""

    target: str
    number: int
    """Number of the input under the seed."""
    kind: str
    detail: str
    data: bytes


@dataclass
class Tally:
    """Outcomes and faults of one target's inputs."""

    target: str
    runs: int = 0
    cpu_s: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: dict[str, Fault] = field(default_factory=dict)
    """First fault of each kind and place."""
    grown_bytes: int = 0
    """Growth of the process's memory between the first readings and the last."""
    skipped: str = ""
    """Why the target was not run; empty if it was run."""

    def count(self, fault: Fault) -> None:
        """Count a fault."""
        self.outcomes[fault.kind] += 1
        self.faults.setdefault(f"{fault.kind} {fault.detail.partition(' ')[0]}", fault)


def input_of(target: Target, corpus: Sequence[bytes], seed: int, number: int) -> bytes:
    """Return the input of that number. The first ones are the genuine inputs, unchanged."""
    if number < len(corpus):
        return corpus[number]
    return mutated(Random(f"{target.name} {seed} {number}"), corpus, target.shape)


def missing(target: Target) -> str:
    """Return why a target cannot run here, or an empty string."""
    return f"{target.needs} is not installed" if target.needs and find_spec(target.needs) is None else ""


def run(target: Target, numbers: Iterable[int], seed: int, begins: Callable[[int], None] = lambda _: None) -> Tally:
    """Read the inputs of these numbers. `begins` is called with each number before its input is read."""
    tally = Tally(target.name, skipped=missing(target))
    if tally.skipped:
        return tally
    corpus, numbers = tuple(target.corpus()), list(numbers)
    settled = max(1, int(len(numbers) * _FIRST_SHARE))
    with TemporaryDirectory(prefix="hw-fuzz-") as folder:
        for at, number in enumerate(numbers):
            if at == settled:
                before = _resident_bytes()
            begins(number)
            data = input_of(target, corpus, seed, number)
            started_s = time.process_time()
            verdict = judge(target, data, Path(folder))
            tally.cpu_s += time.process_time() - started_s
            tally.runs += 1
            _count(tally, target, number, verdict, data)
    if len(numbers) > settled:
        tally.grown_bytes = _resident_bytes() - before
        if tally.grown_bytes > KEPT_GROWTH_BYTES:
            tally.count(Fault(target.name, -1, "growth", f"kept {tally.grown_bytes >> 20} MiB", b""))
    return tally


def shrink(target: Target, fault: Fault) -> Fault:
    """Return the same fault with the shortest input that a few hundred tries find."""
    best, size = fault.data, max(1, len(fault.data) // 2)
    tries = 0 if fault.kind == "hang" else _SHRINK_TRIES
    with TemporaryDirectory(prefix="hw-fuzz-") as folder:
        while size and tries > 0:
            shorter = None
            for begin in range(0, len(best), size):
                tries -= 1
                data = best[:begin] + best[begin + size :]
                verdict = judge(target, data, Path(folder))
                if verdict.fault == fault.kind and verdict.detail.partition(" ")[0] == fault.detail.partition(" ")[0]:
                    shorter = data
                    break
                if tries <= 0:
                    break
            if shorter is None:
                size //= 2
            else:
                best = shorter
    return Fault(fault.target, fault.number, fault.kind, fault.detail, best)


def _count(tally: Tally, target: Target, number: int, verdict: Verdict, data: bytes) -> None:
    if verdict.fault:
        tally.count(Fault(target.name, number, verdict.fault, verdict.detail, data))
    else:
        tally.outcomes[verdict.outcome] += 1


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def be_quiet() -> None:
    """Print no log of the parsers, and turn warnings into errors, as in all tests."""
    import warnings

    import structlog

    warnings.simplefilter("error")

    structlog.configure(
        logger_factory=structlog.ReturnLoggerFactory(), processors=[lambda _logger, _name, event: event]
    )


def shares(targets: Sequence[Target], runs: int) -> dict[str, int]:
    """Divide the runs among the targets, so that each gets about the same time, and at least some inputs."""
    weights = {target.name: 1.0 / target.cost for target in targets}
    whole = sum(weights.values())
    return {name: max(20, round(runs * weight / whole)) for name, weight in weights.items()}
