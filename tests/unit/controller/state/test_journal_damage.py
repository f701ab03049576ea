"""A journal that is damaged, of another version, in part not understood, moved away, or on a full disk."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import structlog

import controller.state.journal_file
from controller.base.errors import JournalError
from controller.base.sqlite_file import KEPT_ASIDE
from controller.slurm.model.job import JobKey
from controller.state.journal import Journal, read_originals
from controller.state.ledger import Ledger, Refusal
from controller.state.preemption import Stage
from tests.unit.controller.examples.build import request
from tests.unit.controller.state.test_journal import KEY, OTHER, full_ledger, preemption

GOOD = json.dumps(asdict(request(gpus_per_job=4)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.sqlite"


def written(path: Path) -> Ledger:
    """A journal that was closed well, with facts about two jobs and a preemption."""
    ledger = full_ledger()
    ledger.originals[OTHER] = request(gpus_per_job=4)
    with closing(Journal(path)) as journal:
        journal.load_ledger()
        journal.found_all()
        journal.save_jobs(ledger, ledger.keys())
        journal.preemptions.add(preemption())
    return ledger


def change(path: Path, statement: str, values: tuple[object, ...] = ()) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(statement, values)


def asides(path: Path, kind: str) -> list[Path]:
    return sorted(
        each for each in path.parent.glob(f"{path.name}.{kind}-*") if not each.name.endswith(("-wal", "-shm"))
    )


# --- files that cannot be used


def test_a_file_that_is_no_database_is_set_aside_and_a_new_one_takes_its_place(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"not a database" * 100)
    path.chmod(0o600)

    with closing(Journal(path)) as journal:
        assert journal.load_ledger() == Ledger()
        assert "it is" in journal.notice
        assert journal.may_lack(KEY, seen_here=False)
    (aside,) = asides(path, "damaged")
    assert aside.read_bytes() == b"not a database" * 100
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    with closing(Journal(path)) as journal:
        assert journal.notice == ""
        assert journal.may_lack(KEY, seen_here=False), "until a snapshot has shown the jobs"
        journal.found_all()
        assert not journal.may_lack(KEY, seen_here=False)


@pytest.mark.parametrize("ending", ["", "-wal"])
@pytest.mark.parametrize("thing", ["pipe", "folder"])
def test_a_path_that_is_no_file_is_set_aside_without_waiting(path: Path, thing: str, ending: str) -> None:
    ledger = written(path)
    place = Path(f"{path}{ending}")
    place.unlink(missing_ok=True)
    os.mkfifo(place) if thing == "pipe" else place.mkdir()

    assert read_originals(path) == (ledger.originals if ending else {})
    with closing(Journal(path)) as journal:
        journal.save_jobs(full_ledger(), [KEY])
    assert path.is_file()


def test_the_schema_alone_damaged_costs_what_cannot_be_read_and_nothing_else(path: Path) -> None:
    # given a file in which SQLite does not understand one entry of the schema
    ledger = written(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = 'CREATE TABLE rubbish' WHERE name = 'decision'")

    assert read_originals(path) == ledger.originals
    with closing(Journal(path)) as journal:
        assert journal.load_ledger() == ledger
        assert [row.number for row in journal.preemptions.open()] == [1]
        assert not journal.may_lack(OTHER, seen_here=True), "every job was read"


def test_a_file_of_a_newer_version_is_kept_and_taken_over(path: Path) -> None:
    # given what a version to come may write: another table, another column, another field
    ledger = written(path)
    change(path, "CREATE TABLE surprise (here TEXT)")
    change(path, "ALTER TABLE job ADD COLUMN surprise TEXT")
    change(path, "UPDATE job SET original = json_set(original, '$.surprise', 7)")
    change(path, "PRAGMA user_version = 5")
    before = path.read_bytes()
    assert read_originals(path) == ledger.originals, "the watchdog reads it as well"
    # when this version starts
    with closing(Journal(path)) as journal:
        # then it has all that it understands,
        assert journal.load_ledger() == ledger
        assert [row.number for row in journal.preemptions.open()] == [1]
        assert "schema 5, this one reads 4" in journal.notice
        assert not journal.may_lack(KEY, seen_here=True)
    # and the newer file is as it was
    (aside,) = asides(path, "schema-5")
    assert aside.read_bytes() == before


def test_a_newer_file_that_somebody_has_open_is_left_alone(path: Path) -> None:
    with closing(Journal(path)):
        change(path, "PRAGMA user_version = 5")
        with pytest.raises(JournalError, match="another process has it open"):
            Journal(path)
    assert asides(path, "schema-5") == []


def test_only_the_newest_files_set_aside_are_kept(path: Path) -> None:
    for number in range(KEPT_ASIDE + 3):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(f"rubbish {number}".encode() * 100)
        Journal(path).close()

    kept = [each.read_bytes()[:9].decode() for each in asides(path, "damaged")]
    assert kept == [f"rubbish {number}" for number in range(3, KEPT_ASIDE + 3)]


def test_a_controller_killed_while_rows_are_taken_over_does_it_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = written(path)
    change(path, "PRAGMA user_version = 5")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(controller.state.journal_file, "salvage", killed)
        with pytest.raises(KeyboardInterrupt):
            Journal(path)
    with closing(Journal(path)) as journal:
        assert journal.load_ledger() == ledger


# --- rows that are not understood


@pytest.mark.parametrize(
    "bad",
    [
        "{", "null", "7", "[]", "{}", '"text"', b"\xff\xfe", 7, 1.5, "[" * 100_000, "9" * 10_000,
        GOOD.replace('"num_cpus": 1', '"num_cpus": NaN'), GOOD.replace('"num_cpus": 1', '"num_cpus": 1e400'),
        GOOD.replace('"num_cpus": 1', '"num_cpus": "1"'), GOOD.replace('"num_cpus": 1', '"num_cpus": -1'),
        GOOD.replace('"num_cpus": 1', '"num_cpus": ' + "9" * 5000), GOOD.replace('"num_cpus": 1', '"num_cpus": 1.5'),
        GOOD.replace('"required_nodes": []', '"required_nodes": ["n1 Priority=9"]'),
        GOOD.replace('"required_nodes": []', '"required_nodes": "n1"'), GOOD.replace('"gpu_type": ""', '"gpu_type": null'),
    ],
)  # fmt: skip
def test_a_bad_request_costs_that_job_alone_and_stays_in_the_file(path: Path, bad: Any) -> None:
    assert GOOD.count('"num_cpus": 1') == GOOD.count('"required_nodes": []') == 1
    ledger = written(path)
    change(path, "UPDATE job SET original = ? WHERE job_id = ?", (bad, KEY.job_id))
    good = {OTHER: ledger.originals[OTHER]}

    assert read_originals(path) == good
    with closing(Journal(path)) as journal:
        with structlog.testing.capture_logs() as logs:
            found = journal.load_ledger()
            journal.load_ledger()
        assert found.originals == good
        assert (found.pins, found.served) == (ledger.pins, ledger.served)
        assert [(line["column"], line["job"]) for line in logs] == [("job.original", KEY.job_id)]
        assert (journal.may_lack(KEY, seen_here=False), journal.may_lack(OTHER, seen_here=True)) == (True, False)
        found.served.pop(KEY)
        journal.save_jobs(found, [KEY])
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = bytes
        (kept,) = db.execute("SELECT original FROM job WHERE job_id = ?", (KEY.job_id,)).fetchone()
    assert kept in (bad, str(bad).encode())


@pytest.mark.parametrize(
    ("column", "bad"),
    [
        ("pin", '{"nodes": "n1"}'), ("refusal", '{"reason": 7}'), ("served", '{"service_s": NaN, "gpu_s": 1, "first_submit_s": 1}'),
        ("yielded", "many"), ("yielded", -3), ("elsewhere", '{"avoid": {"n1": 2}}'),
        ("refusal", '{"reason": "", "refused_at_s": 1.0, "retry_at_s": 2.0, "count": 1e999}'),
    ],
)  # fmt: skip
def test_any_bad_column_costs_that_column(path: Path, column: str, bad: object) -> None:
    ledger = written(path)
    change(path, f"UPDATE job SET {column} = ? WHERE job_id = ?", (bad, KEY.job_id))
    with closing(Journal(path)) as journal:
        found = journal.load_ledger()
    facts = {
        "pin": "pins", "refusal": "refusals", "served": "served", "yielded": "yielded", "elsewhere": "relocations"
    }  # fmt: skip
    assert getattr(found, facts[column]) == {}
    assert found.originals == ledger.originals


@pytest.mark.parametrize(
    ("job_id", "submit"), [("rm -rf", 1), (b"\xff", 1), ("", 1), ("12_x", 1), ("12", -1), ("12", "x")]
)
def test_a_row_that_names_no_job_is_passed_over(path: Path, job_id: object, submit: object) -> None:
    ledger = written(path)
    change(path, "INSERT INTO job (job_id, submit_time_s, original) VALUES (?, ?, ?)", (job_id, submit, GOOD))

    assert read_originals(path) == ledger.originals
    with closing(Journal(path)) as journal:
        assert journal.load_ledger() == ledger


def test_fields_that_are_missing_take_their_defaults_and_new_ones_are_passed_over(path: Path) -> None:
    written(path)
    refusal = {
        "reason": "Limit",
        "refused_at_s": 1.0,
        "retry_at_s": 2.0,
        "count": 3,
        "of_a_later_version": [1, {"a": 2}],
    }
    change(path, "UPDATE job SET refusal = ? WHERE job_id = ?", (json.dumps(refusal), KEY.job_id))
    with closing(Journal(path)) as journal:
        assert journal.load_ledger().refusals == {KEY: Refusal("Limit", 1.0, 2.0, 3)}


@pytest.mark.parametrize(
    ("column", "bad"),
    [
        ("stage", "thinking"), ("nodes", "[7]"), ("elsewhere", "{"), ("asked_s", "soon"), ("force", 2), ("attempt", -1),
        ("job_id", "x y"),
    ],
)  # fmt: skip
def test_a_bad_preemption_is_passed_over_and_stays(path: Path, column: str, bad: object) -> None:
    written(path)
    with closing(Journal(path)) as journal:
        second = journal.preemptions.add(preemption(raw_id=16))
        change(path, f"UPDATE preemption SET {column} = ? WHERE number = 1", (bad,))
        assert journal.preemptions.open() == [second]
        assert journal.preemptions.find(1) is None
        assert journal._db.execute("SELECT COUNT(*) FROM preemption").fetchone() == (2,)


# --- a start that ends while it replaces a file


class _KilledError(BaseException):
    """As kill -9: no handler of the journal's sees it."""


@pytest.mark.parametrize("renames", range(5))
def test_a_process_killed_while_it_replaces_a_file_loses_nothing_at_the_next_start(
    path: Path, renames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a file of a newer version, with facts that are only in its write-ahead log
    ledger = newer_with_a_log(path)
    # when a start is killed after so many renames
    with monkeypatch.context() as patch:
        _allow(patch, os, "rename", renames, _KilledError)
        _allow(patch, Path, "rename", 0, _KilledError)
        with pytest.raises(_KilledError):
            Journal(path)
    gc.collect()  # the lock of a process ends with it
    # then the next one has everything, and the old file is beside the new one with its log
    with closing(Journal(path)) as journal:
        assert journal.load_ledger() == ledger
        assert not journal.may_lack(KEY, seen_here=True)
        assert journal.notice
    assert len(asides(path, "schema-9")) == 1
    assert not path.with_name(f"new-{path.name}").exists()


def test_a_disk_that_is_full_when_a_file_is_replaced_leaves_it_where_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = newer_with_a_log(path)
    with monkeypatch.context() as patch:
        _allow(patch, controller.state.journal_file, "make_tables", 0, _no_room)
        for _ in range(3):
            with pytest.raises(JournalError, match="disk is full"):
                Journal(path)
            gc.collect()
    assert asides(path, "schema-9") == []
    with closing(Journal(path)) as journal:
        assert journal.load_ledger() == ledger


@pytest.mark.parametrize("content", [b"", b"rubbish!" * 1000])
def test_a_next_file_that_was_not_made_to_its_end_does_not_count(path: Path, content: bytes) -> None:
    ledger = written(path)
    path.with_name(f"new-{path.name}").write_bytes(content)
    with closing(Journal(path)) as journal:
        assert (journal.load_ledger(), journal.notice) == (ledger, "")
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name]


def _no_room() -> BaseException:
    return sqlite3.OperationalError("database or disk is full")


def newer_with_a_log(path: Path) -> Ledger:
    """A journal of a newer version whose program was killed: some rows are only in the log."""
    ledger = written(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE job SET yielded = 7 WHERE job_id = ?", (KEY.job_id,))
        db.execute("PRAGMA user_version = 9")
        for ending in ("", "-wal"):
            shutil.copyfile(f"{path}{ending}", path.with_name(f"kept{ending}"))
    for ending in ("", "-wal"):
        path.with_name(f"kept{ending}").rename(f"{path}{ending}")
    ledger.yielded[KEY] = 7
    return ledger


def _allow(patch: pytest.MonkeyPatch, holder: Any, name: str, times: int, then: Callable[[], BaseException]) -> None:
    """So many calls work, and the ones after them raise."""
    real, left = getattr(holder, name), [times]

    def call(*given: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise then()
        return real(*given, **named)

    patch.setattr(holder, name, call)


# --- damage that shows later


def rubbish(journal: Journal, path: Path) -> None:
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.write(b"rubbish!" * 8192)
    journal._db.execute("PRAGMA shrink_memory")


def a_table_less(journal: Journal, path: Path) -> None:
    change(path, "DROP TABLE IF EXISTS intent")


@pytest.mark.parametrize("harm", [rubbish, a_table_less])
def test_damage_while_it_is_open_costs_one_step_and_no_fact(path: Path, harm: Any) -> None:
    # given a controller at work, with a preemption under way
    written(path)
    notes: list[str] = []
    journal = Journal(path)
    journal.notify(notes.append)
    ledger = journal.load_ledger()
    (row,) = journal.preemptions.open()
    row = replace(row, stage=Stage.SAVED, saved_s=101.0)
    journal.preemptions.save(row)
    # when its file is damaged
    harm(journal, path)
    with pytest.raises(JournalError):
        for _ in range(2):  # the first may find what it needs in memory
            journal.begin("pin", {KEY: "n1:2"}, 10.0)
    # then the next cycle works, and the file has all that was known
    journal.require_well()
    (number,) = journal.begin("pin", {KEY: "n1:2"}, 11.0)
    journal.finish([number], [KEY], {}, 12.0)
    journal.close()
    assert len(notes) == 1
    assert len(asides(path, "damaged")) == 1
    with closing(Journal(path)) as again:
        assert again.load_ledger() == ledger
        assert again.preemptions.open() == [row]
        assert again.preemptions.add(preemption()).number > row.number


def test_a_disk_that_damages_every_file_is_not_filled_with_them(path: Path) -> None:
    journal = Journal(path)
    journal.load_ledger()
    for _ in range(10):
        a_table_less(journal, path)
        with pytest.raises(JournalError) as caught:
            journal.begin("pin", {KEY: ""}, 1.0)
    assert "again and again" in str(caught.value)
    assert len(asides(path, "damaged")) == 3
    journal.close()


def test_a_folder_that_may_not_be_written_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a journal that is damaged, and cannot be set aside
    written(path)
    with closing(Journal(path)) as journal:
        ledger = journal.load_ledger()
        a_table_less(journal, path)

        def refused(*_: object) -> None:
            raise PermissionError("not yours")

        with monkeypatch.context() as patch:
            patch.setattr(controller.state.journal_file, "move_aside", refused)
            for _ in range(2):
                with pytest.raises(JournalError):
                    journal.begin("pin", {KEY: ""}, 1.0)
        # when that is mended
        journal.require_well()
        # then it works again, with everything
        journal.begin("pin", {KEY: ""}, 2.0)
        assert journal.load_ledger() == ledger


def test_a_file_moved_away_under_a_controller_is_written_again(path: Path) -> None:
    written(path)
    with closing(Journal(path)) as journal:
        ledger = journal.load_ledger()
        path.rename(path.with_name("away"))
        journal.require_well()
        assert "moved away" in journal.notice
    with closing(Journal(path)) as journal:
        assert journal.load_ledger() == ledger


@pytest.mark.parametrize("harm", [lambda _, path: path.unlink(), rubbish])
def test_what_could_not_be_written_again_is_written_as_soon_as_it_can_be(
    path: Path, harm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a file that was replaced, and a disk that was full when memory was to go into the new one
    written(path)
    with closing(Journal(path)) as journal:
        ledger = journal.load_ledger()
        journal.found_all()
        preemptions = journal.preemptions.open()
        harm(journal, path)
        with monkeypatch.context() as patch:
            patch.setattr(journal, "save_jobs", _full_disk)
            with pytest.raises(JournalError, match="disk"):
                for _ in range(3):
                    journal.require_well()
                    journal.open_intents()
            with pytest.raises(JournalError, match="disk"):
                journal.require_well()
        # when there is room again
        journal.require_well()
        # then the file has everything
        assert journal.load_ledger() == ledger
        assert journal.preemptions.open() == preemptions


def _full_disk(*_: object) -> None:
    raise JournalError("the disk is full")


def test_a_preemption_whose_row_is_gone_is_written_all_the_same(path: Path) -> None:
    written(path)
    with closing(Journal(path)) as journal:
        (row,) = journal.preemptions.open()
        change(path, "DELETE FROM preemption")
        row = replace(row, stage=Stage.SAVED, saved_s=101.0)
        journal.preemptions.save(row)
        assert journal.preemptions.open() == [row]
        assert journal.preemptions.add(preemption()).number > row.number


def removed(journal: Journal, path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [removed, rubbish, a_table_less])
def test_a_file_replaced_under_a_controller_with_a_complete_ledger_lacks_nothing(path: Path, harm: Any) -> None:
    written(path)
    with closing(Journal(path)) as journal:
        ledger = journal.load_ledger()
        harm(journal, path)
        for _ in range(2):
            with suppress(JournalError):
                journal.begin("pin", {KEY: ""}, 1.0)
        journal.require_well()
    with closing(Journal(path)) as journal:
        assert journal.load_ledger() == ledger
        assert not journal.may_lack(KEY, seen_here=True)


@pytest.mark.parametrize("harm", [removed, rubbish, a_table_less])
def test_a_file_that_lacks_facts_is_still_known_for_it_when_it_is_replaced(path: Path, harm: Any) -> None:
    # given a journal that has lost facts, and that nobody has compared with Slurm yet
    written(path)
    path.write_bytes(b"not a database" * 1000)
    with closing(Journal(path)) as journal:
        journal.load_ledger()
        # when its file is lost as well
        harm(journal, path)
        for _ in range(2):
            with suppress(JournalError):
                journal.begin("pin", {KEY: ""}, 1.0)
        journal.require_well()
        # then that is not forgotten
        assert journal.may_lack(KEY, seen_here=True)
    with closing(Journal(path)) as journal:
        assert journal.may_lack(KEY, seen_here=True)


# --- a full disk


def test_while_large_writes_fail_the_journal_counts_as_failed(path: Path) -> None:
    # given a disk that is full but for a few pages
    journal = Journal(path)
    journal.load_ledger()
    journal.require_well()
    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(JournalError, match="is the disk full"):
        journal.record_decision(_decision(), [(KEY, "n1:8", "x" * 100_000)])
    # when a small step goes through
    journal.begin("pin", {KEY: ""}, 1.0)
    # then it counts as full all the same, until there is room again
    for _ in range(3):
        with pytest.raises(JournalError, match="is the disk full"):
            journal.require_well()
    journal._db.execute("PRAGMA max_page_count = 1000000")
    journal.require_well()
    assert asides(path, "damaged") == []
    journal.close()


def test_what_slurm_is_about_to_forget_outlives_a_loss_of_power(path: Path) -> None:
    with closing(Journal(path)) as journal:
        statements: list[str] = []
        journal._db.set_trace_callback(statements.append)
        journal.save_jobs(full_ledger(), [KEY])
        journal.begin("pin", {KEY: ""}, 1.0)
        journal.preemptions.add(preemption())
    settings = [line for line in statements if line.startswith("PRAGMA synchronous")]
    assert settings == [f"PRAGMA synchronous = {mode}" for mode in ("FULL", "NORMAL", "FULL")]


def _decision() -> Any:
    return controller.state.journal.DecisionEntry(1.0, 1, "abc", "fifo", 0.01, "")


# --- what the watchdog reads


@pytest.mark.parametrize("name", ["what?mode=rw", "a#b", "100%41", "two words", "a&b=c"])
def test_the_watchdog_reads_a_journal_of_any_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "journal.sqlite"
    ledger = written(path)

    assert read_originals(path) == ledger.originals


def test_the_watchdog_reads_nothing_where_nothing_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").touch()
    for name in ("folder", "pipe", "loop", "empty", "absent", "no/such/folder"):
        assert read_originals(tmp_path / name) == {}
    assert read_originals(Path("/dev/zero")) == {}


def test_the_watchdog_does_not_wait_for_a_journal_without_end(path: Path) -> None:
    written(path)
    change(path, "DROP TABLE job")
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, i, NULL FROM n WHERE i < 0"
    change(path, f"CREATE VIEW job (job_id, submit_time_s, original) AS {endless}")

    assert read_originals(path, limit_s=0.2) == {}


def test_damage_to_a_name_in_the_schema_is_found_at_the_start(path: Path) -> None:
    # given a damage that SQLite's own check passes over
    ledger = written(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, 'served TEXT', 'serwed TEXT') WHERE name = 'job'")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA quick_check").fetchall() == [("ok",)]

    with closing(Journal(path)) as journal:
        found = journal.load_ledger()
        assert (found.originals, found.pins, found.served) == (ledger.originals, ledger.pins, {})
    assert len(asides(path, "damaged")) == 1


@pytest.mark.parametrize("jobs", [2, 500])
def test_a_file_whose_first_page_is_rubbish_still_has_every_job(path: Path, jobs: int) -> None:
    # given the facts of some jobs, on one page or on many
    ledger = full_ledger()
    for number in range(jobs):
        ledger.originals[JobKey(str(number), 7)] = request(gpus_per_job=1 + number)
    with closing(Journal(path)) as journal:
        journal.save_jobs(ledger, ledger.keys())
    # when the page that says where everything is is gone
    with path.open("r+b") as file:
        file.write(os.urandom(4096))

    assert read_originals(path) == ledger.originals
    with closing(Journal(path)) as journal:
        assert journal.load_ledger() == ledger
        assert journal.may_lack(KEY, seen_here=False), "what the log had is not known"
