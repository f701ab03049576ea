"""A journal damaged at random: the controller and the watchdog go on, with whatever can be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from controller.base.errors import JournalError
from controller.slurm.model.job import JobKey, ResourceRequest
from controller.state.journal import Journal, read_originals
from tests.unit.controller.examples.corrupted import JOBS, damage, key, whole_ledger, write_journal

_SEEDS = int(os.environ.get("HEADWAY_CORRUPTIONS", "200"))
_AT_ONCE = 50


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_journal(tmp_path_factory.mktemp("journal"))


def copy(killed: Path, folder: Path) -> Path:
    path = folder / "journal.sqlite"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    for ending in ("", "-wal"):
        shutil.copyfile(f"{killed}{ending}", f"{path}{ending}")
    return path


def test_undamaged_it_has_everything(killed: Path, tmp_path: Path) -> None:
    path = copy(killed, tmp_path / "copy")

    assert read_originals(path) == whole_ledger().originals
    journal = Journal(path)
    assert journal.load_ledger() == whole_ledger()
    assert (journal.notice, len(journal.preemptions.open())) == ("", JOBS)
    journal.close()


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=pytest.mark.slow if first >= _AT_ONCE else ()) for first in range(0, _SEEDS, _AT_ONCE)],
)
def test_damage_of_any_byte_stops_nothing(killed: Path, tmp_path: Path, first: int) -> None:
    for seed in range(first, min(first + _AT_ONCE, _SEEDS)):
        path = copy(killed, tmp_path / "copy")
        what = damage(path, seed)
        try:
            watch(path)
            control(path)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {what}") from error


_HEADER = 100


@pytest.mark.parametrize("value", [0xFF, *(pytest.param(value, marks=pytest.mark.slow) for value in (0, 3))])
def test_damage_of_the_header_stops_nothing(killed: Path, tmp_path: Path, value: int) -> None:
    """For example, the header says that the file must not be written. The write-ahead log, which has a copy of it, is gone."""
    closed = copy(killed, tmp_path / "closed")
    Journal(closed).close()
    whole = closed.read_bytes()
    for place in range(_HEADER):
        path = tmp_path / "copy" / "journal.sqlite"
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir(mode=0o700)
        path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
        path.chmod(0o600)
        try:
            watch(path)
            control(path)
        except Exception as error:
            raise AssertionError(f"byte {place}") from error


def watch(path: Path) -> None:
    """Read the original requests as the watchdog does: each is well-formed, and no exception is raised."""
    for job, request in read_originals(path).items():
        assert isinstance(job, JobKey)
        assert isinstance(request, ResourceRequest)


def control(path: Path) -> None:
    """A controller's start and its first cycles. One cycle may fail, by JournalError; then the journal works."""
    journal = Journal(path)
    ledger = journal.load_ledger()
    for _ in range(3):
        try:
            use(journal)
            break
        except JournalError:
            journal.require_well()
    else:
        raise AssertionError("the journal fails again and again")
    # what is written now is there at the next start
    ledger.originals[key(0)] = whole_ledger().originals[key(0)]
    journal.save_jobs(ledger, [key(0)])
    assert journal.load_ledger().originals[key(0)] == ledger.originals[key(0)]
    journal.close()
    again = Journal(path)
    assert key(0) in again.load_ledger().originals
    again.close()


def use(journal: Journal) -> None:
    journal.require_well()
    for row in journal.preemptions.open():
        journal.preemptions.save(row)
    journal.preemptions.since(0.0)
    for intent in journal.open_intents():
        journal.settle({intent.number: "found running"}, 5.0)
    journal.estimates(10, 2)
    for number in (0, 30, 59):
        journal.intents_of(key(number))
        journal.decisions_of(key(number))
        journal.last_run(str(number))
    journal.finish(journal.begin("pin", {key(0): "n1"}, 9.0), [key(0)], {}, 10.0)
    journal.prune(50, 2.5)
