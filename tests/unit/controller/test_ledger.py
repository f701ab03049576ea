"""What the controller remembers of where jobs are to go."""

from controller.ledger import Ledger, Served
from controller.preemption import Elsewhere
from controller.slurm.client import JobKey

OLD, NEW = JobKey("1", 100), JobKey("1", 200)


def test_a_requeued_job_is_still_to_go_elsewhere():
    ledger = Ledger()
    ledger.send(OLD, Elsewhere(avoid=frozenset({"n1"})))
    ledger.succeed(OLD, NEW, Served(0.0, 0.0, 100))
    assert ledger.elsewhere == {NEW: Elsewhere(avoid=frozenset({"n1"}))}
    assert ledger.keys() == {NEW}


def test_a_job_that_has_arrived_may_go_anywhere_next_time_but_keeps_its_size():
    ledger = Ledger()
    ledger.send(OLD, Elsewhere(only=frozenset({"n1"}), gpus=4))
    assert ledger.arrive(OLD, 4)
    assert ledger.elsewhere == {OLD: Elsewhere(gpus=4)}
    assert not ledger.arrive(OLD, 4)
    # and "as many as before" is as many as it was given
    ledger.send(OLD, Elsewhere(avoid=frozenset({"n2"})))
    assert ledger.elsewhere == {OLD: Elsewhere(avoid=frozenset({"n2"}), gpus=4)}


def test_nothing_is_kept_of_a_job_that_may_go_anywhere():
    ledger = Ledger()
    ledger.send(OLD, Elsewhere())
    ledger.send(NEW, Elsewhere(only=frozenset({"n1"})))
    assert ledger.arrive(NEW, 8)
    assert ledger.elsewhere == {}
    assert ledger.keys() == set()


def test_a_forgotten_job_goes_nowhere():
    ledger = Ledger()
    ledger.send(OLD, Elsewhere(gpus=2))
    assert ledger.keys() == {OLD}
    ledger.forget({OLD})
    assert ledger.keys() == set()


def test_a_job_that_runs_in_another_size_than_it_was_given_has_its_users_own():
    ledger = Ledger()
    ledger.send(OLD, Elsewhere(gpus=2))
    assert ledger.arrive(OLD, 4)
    assert ledger.elsewhere == {}
