"""Catalogue of the defects: a campaign that does not find them is not worth its time.

Times are scaled down where a defect needed days. Where a later check makes an old defect harmless, that check is left out too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from tests.campaign.verdict.defects import holds, journal, placing

Defect = Callable[[], AbstractContextManager[None]]

_ALL: Sequence[Defect] = (
    placing.exponent_overflows,
    placing.swap_ends_the_controller,
    holds.mark_fails_hold_forgotten,
    holds.hold_while_placed_dropped,
    holds.hold_only_wakes,
    holds.every_hold_is_of_requeued_jobs,
    holds.users_cannot_release,
    holds.both_marks_left,
    holds.unmarked_holds_are_ours,
    journal.journal_of_another_version_ends_it,
    journal.journal_of_another_version_ends_watchdog,
    journal.lost_update_on_a_journal_error,
    placing.bursts_are_taken_back,
    journal.damaged_value_ends_it,
    journal.damaged_value_ends_watchdog,
    placing.moved_to_a_silent_node,
    journal.damaged_journal_ends_it,
    journal.damaged_journal_ends_watchdog,
    holds.watchdog_frees_users_jobs,
    placing.unfit_node_for_ever,
    placing.impossible_where_placed,
    placing.own_request_not_restored,
    placing.stopped_before_it_has_saved,
    placing.stopped_twice,
    placing.requests_by_id_alone,
    placing.tasks_die_silently,
    placing.clock_set_back_keeps_pauses,
    holds.users_hold_overridden,
    placing.reissued_id_inherits,
)
DEFECTS: Mapping[str, Defect] = {defect.__name__.replace("_", "-"): defect for defect in _ALL}
"""Name on the command line → what puts the defect back."""

REVIEWS: Mapping[str, str] = {
    "exponent-overflows": "controller B1",
    "bursts-are-taken-back": "controller B2",
    "swap-ends-the-controller": "controller B3",
    "mark-fails-hold-forgotten": "controller B4",
    "hold-while-placed-dropped": "controller B4, campaign V4b",
    "journal-of-another-version-ends-it": "controller B5",
    "journal-of-another-version-ends-watchdog": "controller B5",
    "lost-update-on-a-journal-error": "controller B6",
    "tasks-die-silently": "controller B7",
    "damaged-journal-ends-it": "campaign V1",
    "damaged-value-ends-it": "campaign V1",
    "damaged-journal-ends-watchdog": "campaign V1",
    "damaged-value-ends-watchdog": "campaign V1",
    "moved-to-a-silent-node": "users 1",
    "users-cannot-release": "campaign V2",
    "unfit-node-for-ever": "campaign V3",
    "hold-only-wakes": "campaign V4a",
    "users-hold-overridden": "campaign V4c",
    "impossible-where-placed": "operators A2",
    "own-request-not-restored": "operators A2",
}
"""Defects that were found by reviews of an earlier version, and the number that they have there; all others were found since."""
