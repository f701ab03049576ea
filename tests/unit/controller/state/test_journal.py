"""The journal: the state that the controller keeps over a restart."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from controller.base.errors import JournalError
from controller.forecast.past_runs import read_past_runs
from controller.slurm.client import Failure
from controller.slurm.model.job import JobKey
from controller.state.journal import DecisionEntry, Journal, RunRecord, read_originals
from controller.state.journal_rows import decode_constraint, encode
from controller.state.ledger import Ledger, PinRecord, Refusal, Served
from controller.state.preemption import Cause, EndReason, Preemption, PreemptionMethod, RelocationConstraint, Stage
from controller.state.usage import EndedUse, read_ended_use
from tests.unit.controller.examples.build import request

KEY = JobKey("12_3", 1000)
OTHER = JobKey("13", 1001)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "journal.sqlite"


def run(key, service_s, *, end_s=5000.0, state="COMPLETED", name="bert"):
    return RunRecord(key, "ann", name, end_s - service_s, end_s, service_s, 8, 1, state)


def full_ledger():
    ledger = Ledger()
    ledger.originals[KEY] = request(gpus_per_job=12, required_nodes=("n1",), excluded_nodes=("n2",))
    ledger.pins[KEY] = PinRecord(("n1", "n3"), (6, 6), 1, 2000.5, "srtf", "best fit")
    ledger.refusals[KEY] = Refusal("AssocGrpGRES", 1.0, 2.0, 3)
    ledger.served[KEY] = Served(7.0, 8.0, 900)
    ledger.yielded[KEY] = 2
    ledger.relocations[KEY] = RelocationConstraint(frozenset({"n4"}), frozenset({"n1", "n3"}), 12)
    return ledger


def test_the_ledger_is_loaded_as_it_was_saved(path):
    journal, ledger = Journal(path), full_ledger()
    journal.save_jobs(ledger, [KEY])
    journal.close()
    assert Journal(path).load_ledger() == ledger


def test_a_forgotten_job_leaves_the_file(path):
    journal, ledger = Journal(path), full_ledger()
    journal.save_jobs(ledger, [KEY])
    ledger.forget({KEY})
    journal.save_jobs(ledger, [KEY])
    assert journal.load_ledger() == Ledger()


def test_a_step_without_an_end_is_found_after_a_kill(path):
    # given a step that was begun, and another that ended
    journal = Journal(path)
    numbers = journal.begin("pin", {KEY: "n1:6,n3:6", OTHER: "n2:1"}, 10.0)
    # when the process is gone without a word
    found = Journal(path).open_intents()
    # then both are open, and closing the books ends that
    assert [(intent.verb, intent.key, intent.outcome) for intent in found] == [("pin", KEY, None), ("pin", OTHER, None)]
    journal.finish(numbers, [KEY, OTHER], {OTHER: Failure("no such node")}, 11.0)
    assert journal.open_intents() == []
    assert journal.intents_of(OTHER)[0].outcome == "no such node"
    assert journal.intents_of(KEY)[0].outcome == "done"


def test_decisions_are_kept_by_job_newest_first_and_only_so_many(path):
    journal = Journal(path)
    for number in range(30):
        entry = DecisionEntry(float(number), number, "abc", "srtf", 0.01, "")
        journal.record_decision(entry, [(KEY, "n1:8", f"reason {number}")])
    assert [placed.reason for placed in journal.decisions_of(KEY, 2)] == ["reason 29", "reason 28"]
    journal.prune(keep_decisions=10, older_than_s=0.0)
    assert len(journal.decisions_of(KEY, 100)) == 10


def test_estimates_need_enough_completed_runs_of_the_same_name(path):
    journal = Journal(path)
    journal.record_runs(run(JobKey(str(i), 1), 100.0 + i, end_s=5000.0 + i) for i in range(4))
    journal.record_runs([run(JobKey("9", 1), 5.0, state="FAILED"), run(JobKey("10", 1), 7.0, name="rare")])
    (found,) = journal.estimates(runs=3, min_runs=3).items()
    assert found[0] == ("ann", "bert")
    assert (found[1].mean_s, found[1].spread_s, found[1].runs) == (pytest.approx(102.0), pytest.approx(1.0), 3)
    assert journal.estimates(runs=10, min_runs=5) == {}


def test_an_estimate_does_not_read_the_runs_that_failed(path):
    journal = Journal(path)
    journal.record_runs(run(JobKey(str(i), 1), 5.0, state="FAILED", end_s=5000.0 + i) for i in range(5000))
    counted = []
    journal._db.set_progress_handler(lambda: counted.append(1), 100)
    assert journal.estimates(10, 2, [("ann", "bert")]) == {}
    journal._db.set_progress_handler(None, 0)
    assert len(counted) < 5


def test_a_run_reported_twice_counts_once(path):
    journal = Journal(path)
    for _ in range(3):
        journal.record_runs([run(KEY, 50.0)])
    assert journal.estimates(10, 2) == {}
    last = journal.last_run("12_3")
    assert last is not None
    assert last.service_s == 50.0


def test_the_watchdog_reads_the_requests_that_have_to_be_given_back(path):
    journal, ledger = Journal(path), full_ledger()
    ledger.yielded[OTHER] = 0
    journal.save_jobs(ledger, [KEY, OTHER])
    assert read_originals(path) == {KEY: ledger.originals[KEY]}
    assert read_originals(path.with_name("absent")) == {}


def test_the_file_and_its_folder_are_for_the_owner_only(path):
    Journal(path)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_the_file_is_not_followed(path, tmp_path):
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(path)
    assert not (tmp_path / "elsewhere").exists()


# --- files of earlier versions


def test_a_file_of_version_1_is_migrated_with_all_its_rows(path):
    # given what the journal of version 1 wrote
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.executescript((Path(__file__).parent / "journal_version_1.sql").read_text())
    old.close()
    # when this version opens it
    with closing(Journal(path)) as journal:
        # then nothing of it is lost
        ledger = journal.load_ledger()
        assert ledger.originals[JobKey("12_3", 1000)].gpus_per_job == 12
        assert ledger.pins[JobKey("12_3", 1000)].nodes == ("n1", "n3")
        assert ledger.served[JobKey("13", 1001)] == Served(7.0, 8.0, 900)
        assert [(intent.verb, intent.outcome) for intent in journal.open_intents()] == [("pin", None)]
        assert [placed.placement for placed in journal.decisions_of(JobKey("12_3", 1000))] == ["n1:6,n3:6"]
        last = journal.last_run("7")
        assert last is not None
        assert last.service_s == 50.0
        # and there is room for what is new
        assert journal.preemptions.open() == []
        journal.save_jobs(ledger, ledger.keys())
        assert journal.load_ledger() == ledger
    # and the next start finds it as this one left it
    with closing(Journal(path)) as journal:
        assert journal.load_ledger() == ledger


def test_a_file_of_the_first_version_2_is_migrated(path):
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.executescript((Path(__file__).parent / "journal_version_2.sql").read_text())
    old.close()
    with closing(Journal(path)) as journal:
        ledger = journal.load_ledger()
        assert ledger == full_ledger()
        (row,) = journal.preemptions.open()
        assert row == replace(preemption(), number=2)
        assert [intent.outcome for intent in journal.intents_of(KEY)] == ["done"]
        # and what was added is beside it
        tables = {name for (name,) in journal._db.execute("SELECT name FROM sqlite_master")}
        assert {"note", "intent_job", "run_end"} <= tables
        assert journal._db.execute("PRAGMA user_version").fetchone() == (4,)


def test_what_an_earlier_version_called_off_as_not_needed_keeps_that_reason(path):
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as old:
        old.executescript((Path(__file__).parent / "journal_version_2.sql").read_text())
        for problem in ("the job for which it was to be stopped no longer waits", "n2: rank 5: could not write"):
            old.execute(
                "INSERT INTO preemption SELECT NULL, job_id, 16, submit_time_s, restarts, cause, why, way, 0, nodes, elsewhere,"
                " within_s, 'called off', asked_s, NULL, NULL, NULL, NULL, 200.0, NULL, 1, ? FROM preemption WHERE number = 2",
                (problem,),
            )
        old.commit()
    with closing(Journal(path)) as journal:
        assert [row.reason for row in journal.preemptions.of_job(16, 5)] == [None, EndReason.NOT_NEEDED]


def test_the_gpu_time_of_all_runs_is_kept_and_rows_of_earlier_versions_have_none(path):
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as old:
        old.executescript((Path(__file__).parent / "journal_version_2.sql").read_text())
    with closing(Journal(path)) as journal:
        assert journal.last_run("7") == RunRecord(
            JobKey("7", 500), "ann", "bert", 4950.0, 5000.0, 50.0, 8, 1, "COMPLETED"
        )
        resized = replace(run(KEY, 50.0), gpu_s=700.0)
        journal.record_runs([resized])
        assert journal.last_run(KEY.job_id) == resized
        assert read_ended_use(path, 0.0) == {"ann": EndedUse(2, 8 * 50.0 + 700.0)}
        gpus = {past.key[0]: past.num_gpus for past in read_past_runs(path)}
        assert gpus == {"7": 8, KEY.job_id: 14}


def test_a_migration_that_fails_in_the_middle_changes_nothing(path):
    # given a file of version 1 in which something stands in the way
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.executescript((Path(__file__).parent / "journal_version_1.sql").read_text())
    old.execute("CREATE TABLE preemption_job (here TEXT)")
    old.commit()
    old.close()
    # when it cannot be taken over
    with closing(Journal(path)) as journal:
        # then what is in it is in a new file
        assert journal.load_ledger().originals[KEY].gpus_per_job == 12
    # and it is what it was: the version that wrote it still reads it
    (aside,) = path.parent.glob("*damaged*Z")
    with closing(sqlite3.connect(aside)) as old:
        assert old.execute("PRAGMA user_version").fetchone() == (1,)
        assert "elsewhere" not in [name for _, name, *_ in old.execute("PRAGMA table_info(job)")]


def test_sets_are_written_in_order():
    assert decode_constraint(encode(RelocationConstraint(frozenset({"b", "a"})))) == RelocationConstraint(
        frozenset({"a", "b"})
    )
    assert '["a", "b"]' in encode(RelocationConstraint(frozenset({"b", "a"})))


def test_the_steps_of_one_job_are_found_by_an_index(path):
    with closing(Journal(path)) as journal:
        plan = journal._db.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM intent WHERE job_id = ? AND submit_time_s = ? ORDER BY id DESC LIMIT 5",
            ("1", 2),
        ).fetchall()
    assert [row[-1] for row in plan] == ["SEARCH intent USING INDEX intent_job (job_id=? AND submit_time_s=?)"]


def test_no_table_grows_beyond_its_bound(path, monkeypatch):
    monkeypatch.setattr("controller.state.journal.MAX_INTENTS", 5)
    monkeypatch.setattr("controller.state.journal.MAX_RUNS", 3)
    monkeypatch.setattr("controller.state.preemption_table.MAX_PREEMPTIONS", 2)
    with closing(Journal(path)) as journal:
        for number in range(8):
            journal.begin("pin", {KEY: str(number)}, 1e9)
            journal.record_runs([run(JobKey(str(number), 1), 1.0, end_s=1e9 + number)])
        rows = [journal.preemptions.add(preemption()) for _ in range(5)]
        for row in rows[1:]:
            journal.preemptions.save(replace(row, stage=Stage.OVER, ended_s=1e9))
        journal.prune(keep_decisions=10, older_than_s=0.0)
        assert [intent.detail for intent in journal.intents_of(KEY)] == ["7", "6", "5", "4", "3"]
        assert [journal.last_run(str(number)) is not None for number in range(8)] == [False] * 5 + [True] * 3
        # one that has not ended stays, however old
        assert [row.number for row in journal.preemptions.newest(10)] == [5, 4, 1]


# --- preemptions


def preemption(**changes):
    values = {
        "number": 0, "job_id": "12_3", "raw_id": 15, "submit_time_s": 1000, "restarts": 1, "cause": Cause.OPERATOR,
        "why": "by hand", "way": PreemptionMethod.CHECKPOINT, "force": True, "nodes": ("n1", "n3"),
        "constraint": RelocationConstraint(frozenset({"n1"}), frozenset({"n4", "n5"}), 4), "within_s": 60.0, "stage": Stage.ASKED,
        "asked_s": 100.5,
    }  # fmt: skip
    return Preemption(**{**values, **changes})


def test_preemptions_are_loaded_as_they_were_saved(path):
    journal = Journal(path)
    first, second = journal.preemptions.add(preemption()), journal.preemptions.add(preemption(raw_id=16, asked_s=200.0))
    assert (first.number, second.number) == (1, 2)
    ended = replace(
        first, stage=Stage.RESUMED, saved_s=101.0, stopped_s=102.0, started_s=103.0, resumed_s=104.0, ended_s=104.0, step=41,
        attempt=2, problem="late",
    )  # fmt: skip
    journal.preemptions.save(ended)
    journal.close()
    found = Journal(path).preemptions
    assert found.find(1) == ended
    assert found.open() == [second]
    assert (found.find(9), found.find(2**63), found.find(2**64 - 1)) == (None, None, None)
    assert (found.of_job(15, 5), found.newest(1), found.since(150.0)) == ([ended], [second], [second])


def test_ended_preemptions_are_dropped_in_time_and_their_numbers_never_come_again(path):
    journal = Journal(path)
    first, second = journal.preemptions.add(preemption()), journal.preemptions.add(preemption(raw_id=16))
    for one in (first, second):
        over = replace(one, stage=Stage.OVER, ended_s=500.0 + one.number, reason=EndReason.JOB_ENDED)
        journal.preemptions.save(over)
        assert journal.preemptions.find(one.number) == over
    journal.prune(keep_decisions=10, older_than_s=502.0)
    assert [one.number for one in journal.preemptions.newest(10)] == [2]
    journal.prune(keep_decisions=10, older_than_s=600.0)
    assert journal.preemptions.add(preemption()).number == 3


def test_jobs_of_two_clusters_with_the_same_id_are_two_jobs(path):
    # given two jobs that differ in the cluster alone
    there = KEY._replace(cluster="b")
    journal, ledger = Journal(path), full_ledger()
    ledger.yielded[there] = 9
    # when their facts, steps, decisions and runs are written
    journal.save_jobs(ledger, [KEY, there])
    journal.begin("pin", {KEY: "n1:6", there: "n2:1"}, 10.0)
    journal.record_decision(
        DecisionEntry(1.0, 1, "d", "srtf", 0.1, ""), [(KEY, "n1:6", "here"), (there, "n2:1", "there")]
    )
    journal.record_runs([run(KEY, 1.0), run(there, 2.0)])
    journal.close()
    # then each comes back as its own
    again = Journal(path)
    assert again.load_ledger() == ledger
    assert [intent.key for intent in again.open_intents()] == [KEY, there]
    assert [again.decisions_of(key)[0].reason for key in (KEY, there)] == ["here", "there"]
    assert again.last_run("12_3").key == KEY
    # and the controller's own jobs are written as before
    with closing(sqlite3.connect(path)) as file:
        assert sorted(file.execute("SELECT job_id FROM job")) == [("12_3",), ("b/12_3",)]


def test_a_preemption_keeps_the_cluster_of_its_job(path):
    journal = Journal(path)
    for cluster in ("", "b"):
        kept = journal.preemptions.add(preemption(job_id=KEY.job_id, submit_time_s=KEY.submit_time_s, cluster=cluster))
        assert journal.preemptions.find(kept.number) == kept
        assert kept.key == KEY._replace(cluster=cluster)
