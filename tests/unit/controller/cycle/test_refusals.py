"""The memory of a refusal: nodes that may be the cause, and nodes that were only tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.cycle.refusals import MOST_BEHIND, MOST_PLACES, Verdict, hopeless, overdue, refused_again
from controller.slurm.model.job import JobKey
from controller.state.ledger import ELSEWHERE_S, UNFIT_S, Ledger, Refusal

KEY = JobKey("1", 100)
BEHIND = Verdict("Slurm did not start it within 10 s (Priority)", behind=True)
NO_ROOM = Verdict("Slurm did not start it within 10 s (Resources)", blames_nodes=True)


def refused(verdict: Verdict, *nodes: str, before: Refusal | None = None, now_s: float = 1000.0) -> Refusal:
    return refused_again(before, verdict, now_s, nodes)


def test_nodes_behind_other_jobs_are_avoided_for_one_attempt_and_unfit_nodes_for_longer() -> None:
    tried = refused(BEHIND, "n1")
    both = refused(NO_ROOM, "n2", before=tried)
    assert (tried.unfit, both.unfit) == ("", "n2")
    assert both.avoided_nodes(both.retry_at_s) == {"n1", "n2"}
    assert both.avoided_nodes(both.retry_at_s + ELSEWHERE_S) == {"n2"}
    assert both.avoided_nodes(1000.0 + UNFIT_S) == frozenset()
    assert both.avoided_nodes(0.0) == frozenset(), "the clock was set back"


def test_nodes_are_tried_in_turn_until_there_are_no_others() -> None:
    refusal = refused(BEHIND, "n1")
    refusal = refused(BEHIND, "n2", "n3", before=refusal)
    assert refusal.tried == "n1,n2,n3"
    refusal = refused(BEHIND, "n3", "n4", before=refusal)
    assert (refusal.tried, refusal.behind) == ("n3,n4", 3)


def test_only_refusals_of_slurm_on_known_nodes_count() -> None:
    refusal = refused(NO_ROOM)
    assert (refusal.unfit, refusal.places, refusal.count) == ("", 0, 1)
    refusal = refused(Verdict("could not be pinned: no"), "n1", before=refusal)
    assert (refusal.unfit, refusal.places, refusal.behind, refusal.tried, refusal.count) == ("", 0, 0, "", 2)


def test_each_kind_of_refusal_has_its_own_limit() -> None:
    def placed_by_slurm(refusal: Refusal) -> dict[JobKey, str]:
        return hopeless({KEY: BEHIND}, Ledger(refusals={KEY: refusal}))

    assert placed_by_slurm(Refusal("", 0, 0, 99, places=MOST_PLACES - 1, behind=MOST_BEHIND - 1)) == {}
    assert "looked free (n1)" in placed_by_slurm(Refusal("", 0, 0, 99, unfit="n1", places=MOST_PLACES))[KEY]
    assert "came before it" in placed_by_slurm(Refusal("", 0, 0, 99, behind=MOST_BEHIND))[KEY]


@pytest.mark.parametrize(("reason", "after_s"), [("Priority", 80.0), ("Resources", 10.0)])
def test_a_job_that_slurm_has_considered_does_not_wait_for_longer_because_it_was_behind_others(
    reason: str, after_s: float
) -> None:
    """It was behind others three times, and refused on nodes once."""
    ledger: Any = SimpleNamespace(
        pins={KEY: SimpleNamespace(pinned_at_s=1000.0, frees_s=0.0)},
        refusals={KEY: Refusal("", 0, 0, 4, behind=3, places=1)},
    )

    def late(now_s: float) -> bool:
        job = SimpleNamespace(key=KEY, reason=reason, partition="dl")
        observation: Any = SimpleNamespace(snapshot=SimpleNamespace(time_s=now_s), with_role=lambda _: [job])
        return bool(overdue(observation, ledger, grace_s=5.0))

    assert [late(1000.0 + after_s - 1.0), late(1000.0 + after_s + 1.0)] == [False, True]
