"""A journal as a killed controller leaves it, and seeded ways to damage its files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from controller.slurm.model.job import JobKey
from controller.state.journal import DecisionEntry, Journal, RunRecord
from controller.state.ledger import Ledger, PinRecord, Refusal, Served
from controller.state.preemption import Cause, Preemption, PreemptionMethod, RelocationConstraint, Stage
from tests.unit.controller.examples.build import request

JOBS = 60
_PAGE = 4096


def key(number: int) -> JobKey:
    """The job of that number."""
    return JobKey(str(1000 + number), 1_700_000_000 + number)


def whole_ledger() -> Ledger:
    """Facts of every kind, about every job."""
    ledger = Ledger()
    for number in range(JOBS):
        job = key(number)
        ledger.originals[job] = request(gpus_per_node=2)
        ledger.pins[job] = PinRecord((f"n{number}",), (2,), 0, 1_700_000_100.5, "fifo", "first in line")
        ledger.refusals[job] = Refusal("AssocGrpGRES", 1.0, 2.0, 3)
        ledger.served[job] = Served(7.0, 14.0, job.submit_time_s)
        ledger.yielded[job] = 1
        ledger.relocations[job] = RelocationConstraint(frozenset({"n1"}), frozenset({"n2"}), 2)
    return ledger


def write_journal(folder: Path) -> Path:
    """A journal with rows in every table, most of them in the write-ahead log yet, as after a kill."""
    path = folder / "open" / "journal.sqlite"
    journal = Journal(path)
    ledger = whole_ledger()
    journal.save_jobs(ledger, ledger.keys())
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(JOBS):
        job = key(number)
        journal.finish(journal.begin("pin", {job: "n1:2"}, 1.0), [job], {}, 2.0)
        journal.begin("release", {job: ""}, 3.0)
        journal.record_decision(DecisionEntry(1.0, number, "abc", "fifo", 0.01, ""), [(job, "n1:2", "first")])
        journal.record_runs([RunRecord(JobKey(str(number), 5), "ann", "bert", 1.0, 9.0, 8.0, 2, 1, "COMPLETED")])
        journal.preemptions.add(_preemption(job))
    journal.save_jobs(ledger, [key(number) for number in range(0, JOBS, 3)])
    there = folder / "killed" / "journal.sqlite"
    there.parent.mkdir(mode=0o700)
    for ending in ("", "-wal"):
        shutil.copyfile(f"{path}{ending}", f"{there}{ending}")
    journal.close()
    return there


def _preemption(job: JobKey) -> Preemption:
    return Preemption(
        number=0, job_id=job.job_id, raw_id=int(job.job_id), submit_time_s=job.submit_time_s, restarts=0, cause=Cause.POLICY,
        why="for another", way=PreemptionMethod.CHECKPOINT, force=False, nodes=("n1",),
        constraint=RelocationConstraint(frozenset({"n1"})),
        within_s=60.0, stage=Stage.ASKED, asked_s=100.0,
    )  # fmt: skip


def damage(path: Path, seed: int) -> str:
    """Damage the journal at that path in one of many ways; returns which."""
    dice = random.Random(seed)
    file = path if dice.random() < 0.7 else Path(f"{path}-wal")
    name, change = dice.choice(_WAYS)
    data = bytearray(file.read_bytes())
    change(dice, data)
    file.write_bytes(data)
    return f"{name} in {file.name}"


def _flip(dice: random.Random, data: bytearray) -> None:
    for _ in range(dice.choice((1, 3, 20, 200))):
        data[dice.randrange(len(data))] = dice.randrange(256)


def _flip_bits(dice: random.Random, data: bytearray) -> None:
    for _ in range(dice.choice((1, 2, 8))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _flip_the_beginning(dice: random.Random, data: bytearray) -> None:
    for _ in range(dice.choice((1, 5, 20))):
        data[dice.randrange(min(len(data), _PAGE))] = dice.randrange(256)


def _truncate(dice: random.Random, data: bytearray) -> None:
    del data[dice.randrange(len(data)) :]


def _overwrite_pages(dice: random.Random, data: bytearray) -> None:
    for _ in range(dice.choice((1, 4))):
        start = dice.randrange(len(data)) // _PAGE * _PAGE
        filling = bytes(_PAGE) if dice.random() < 0.5 else dice.randbytes(_PAGE)
        data[start : start + _PAGE] = filling[: len(data) - start]


def _swap_pages(dice: random.Random, data: bytearray) -> None:
    first, second = (dice.randrange(max(len(data) // _PAGE, 1)) * _PAGE for _ in range(2))
    data[first : first + _PAGE], data[second : second + _PAGE] = (
        data[second : second + _PAGE],
        data[first : first + _PAGE],
    )


_WAYS: tuple[tuple[str, Callable[[random.Random, bytearray], None]], ...] = (
    ("bytes", _flip),
    ("bits", _flip_bits),
    ("the beginning", _flip_the_beginning),
    ("cut", _truncate),
    ("pages", _overwrite_pages),
    ("swapped pages", _swap_pages),
)
