"""The ledger: the controller's record of the nodes that jobs are to run on."""

import pytest

from controller.slurm.model.job import JobKey
from controller.state.ledger import Estimate, Ledger, Served
from controller.state.preemption import RelocationConstraint

OLD, NEW = JobKey("1", 100), JobKey("1", 200)


def test_a_requeued_job_is_still_to_go_elsewhere():
    ledger = Ledger()
    ledger.set_constraint(OLD, RelocationConstraint(avoid=frozenset({"n1"})))
    ledger.succeed(OLD, NEW, Served(0.0, 0.0, 100))
    assert ledger.relocations == {NEW: RelocationConstraint(avoid=frozenset({"n1"}))}
    assert ledger.keys() == {NEW}


def test_a_job_that_has_arrived_may_go_anywhere_next_time_but_keeps_its_size():
    ledger = Ledger()
    ledger.set_constraint(OLD, RelocationConstraint(only=frozenset({"n1"}), gpus=4))
    assert ledger.note_start(OLD, 4)
    assert ledger.relocations == {OLD: RelocationConstraint(gpus=4)}
    assert not ledger.note_start(OLD, 4)
    # and "as many as before" is as many as it was given
    ledger.set_constraint(OLD, RelocationConstraint(avoid=frozenset({"n2"})))
    assert ledger.relocations == {OLD: RelocationConstraint(avoid=frozenset({"n2"}), gpus=4)}


def test_another_size_leaves_the_nodes_as_they_are():
    ledger = Ledger()
    ledger.set_constraint(OLD, RelocationConstraint(only=frozenset({"n1"}), gpus=4))
    ledger.set_size(OLD, 2)
    assert ledger.relocations == {OLD: RelocationConstraint(only=frozenset({"n1"}), gpus=2)}
    ledger.set_size(OLD, None)
    assert ledger.relocations == {OLD: RelocationConstraint(only=frozenset({"n1"}))}


def test_nothing_is_kept_of_a_job_that_may_go_anywhere():
    ledger = Ledger()
    ledger.set_constraint(OLD, RelocationConstraint())
    ledger.set_constraint(NEW, RelocationConstraint(only=frozenset({"n1"})))
    assert ledger.note_start(NEW, 8)
    assert ledger.relocations == {}
    assert ledger.keys() == set()


def test_a_forgotten_job_goes_nowhere():
    ledger = Ledger()
    ledger.set_constraint(OLD, RelocationConstraint(gpus=2))
    assert ledger.keys() == {OLD}
    ledger.forget({OLD})
    assert ledger.keys() == set()


def test_a_job_that_runs_in_another_size_than_it_was_given_has_its_users_own():
    ledger = Ledger()
    ledger.set_constraint(OLD, RelocationConstraint(gpus=2))
    assert ledger.note_start(OLD, 4)
    assert ledger.relocations == {}


def test_estimates_are_bounded_and_the_newest_stay(monkeypatch):
    monkeypatch.setattr("controller.state.ledger.MOST_ESTIMATES", 3)
    ledger = Ledger()
    for name in ("a", "b", "c", "a", "d"):
        ledger.update_estimates({("alice", name): Estimate(1.0, 0.0, 3)})
    assert list(ledger.estimates) == [("alice", "c"), ("alice", "a"), ("alice", "d")]


def test_estimates_of_a_journal_of_months_are_bounded(monkeypatch):
    monkeypatch.setattr("controller.state.ledger.MOST_ESTIMATES", 3)
    ledger = Ledger()
    ledger.set_estimates({("alice", f"run-{number}"): Estimate(1.0, 0.0, 3) for number in range(10_000)})
    assert len(ledger.estimates) == 3


def test_an_exception_takes_back_what_was_changed():
    ledger = Ledger(yielded={OLD: 1})
    with pytest.raises(ValueError, match="no"), ledger.all_or_nothing():
        ledger.forget({OLD})
        ledger.estimates = {("alice", "a"): Estimate(1.0, 0.0, 3)}
        raise ValueError("no")
    assert ledger == Ledger(yielded={OLD: 1})
