"""Tests of defects fail when the defect is put back, and pass without it.

docs/faults.md lists the defects and their tests.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from controller.observe import resize
from controller.profiles.store import ProfileStoreError
from tests.campaign.verdict.defects import agents, holds, journal, placing
from tests.campaign.verdict.defects.patches import patched
from tests.unit.controller.agents.reports import test_storage
from tests.unit.controller.cycle import test_cycle_burst, test_cycle_held, test_cycle_journal, test_cycle_refused
from tests.unit.controller.cycle.decision import test_decider_swap
from tests.unit.controller.daemon.watchdog import test_watchdog
from tests.unit.controller.observe import test_resize
from tests.unit.controller.preempt import test_preemptibility
from tests.unit.controller.slurm import test_user_holds
from tests.unit.controller.slurm.embedded import test_faults
from tests.unit.controller.state import test_journal_damage
from tests.unit.controller.worlds.world import World
from tests.unit.nodeagent.jobsocket import test_registry
from tests.unit.nodeagent.jobsocket.node import Node
from tests.unit.nodeagent.uplink import test_encode
from tests.unit.policies.serving.runtime.tasks import test_supervise

Test = Callable[[Path, pytest.MonkeyPatch], Awaitable[None] | None]
"""Runs a test of the defect in this folder."""


def windows_end_at_a_disk_error() -> AbstractContextManager[None]:
    """An error of SQLite ends the regular calculation of windows."""
    return patched(patch("controller.agents.reports.storage.sqlite3", SimpleNamespace(Error=ProfileStoreError)))


def swap_cancels_the_call() -> AbstractContextManager[None]:
    """The old server's channel is closed during the call, and the cancellation of the call counts as that of the caller."""
    without_task = SimpleNamespace(**vars(asyncio) | {"current_task": lambda: None})
    return patched(placing.swap_ends_the_controller(), patch("policies.serving.client.asyncio", without_task))


def every_size_is_listed() -> AbstractContextManager[None]:
    """An answer about possible sizes checks each number of GPUs of the cluster."""
    real = resize._possible_text

    def possible_text(wanted: int, all_gpus: int, may: Callable[[int], bool]) -> str:
        sizes = [number for number in range(1, all_gpus + 1) if may(number)]
        return real(wanted, all_gpus, sizes.__contains__)

    return patched(patch.object(resize, "_possible_text", possible_text))


def sound() -> Any:
    """Return the tests of sound checkpoints, which need torch."""
    pytest.importorskip("torch")
    from tests.unit.headway_job.checkpoints import test_sound_checkpoints

    return test_sound_checkpoints


def skipping(folder: Path) -> Any:
    return World(folder, policy="fifo-skip")


CASES: dict[str, tuple[Callable[[], AbstractContextManager[None]], Test]] = {
    "overflow": (
        placing.exponent_overflows,
        lambda folder, _: test_cycle_refused.test_a_job_refused_for_days_costs_no_cycle(folder),
    ),
    "burst": (
        placing.bursts_are_taken_back,
        lambda folder, _: test_cycle_burst.test_a_burst_larger_than_a_call_allows_runs_in_the_end(folder, 10),
    ),
    "hold-race": (
        holds.hold_while_placed_dropped,
        lambda folder, _: test_user_holds.test_a_hold_while_the_job_is_placed(skipping(folder), "pin", after=False),
    ),
    "follow-runs": (
        journal.lost_update_on_a_journal_error,
        lambda folder, _: test_cycle_journal.test_the_end_of_a_job_is_recorded_in_the_next_cycle(folder),
    ),
    "follow-holds": (
        holds.mark_fails_hold_forgotten,
        lambda folder, _: test_cycle_held.test_a_change_of_hands_that_was_interrupted_is_finished(
            skipping(folder), "mark", "lose_request"
        ),
    ),
    "swap": (
        swap_cancels_the_call,
        lambda folder, _: test_decider_swap.test_a_swap_during_a_call_ends_nothing_and_the_new_server_decides(
            "decide", folder
        ),
    ),
    "watchdog": (
        journal.damaged_journal_ends_watchdog,
        lambda folder, _: test_watchdog.test_without_a_journal_jobs_are_released_as_they_are(
            test_watchdog.House(folder), TypeError("unexpected field")
        ),
    ),
    "damaged-journal": (
        journal.damaged_journal_ends_it,
        lambda folder, _: (
            test_journal_damage.test_a_file_that_is_no_database_is_set_aside_and_a_new_one_takes_its_place(
                folder / "state" / "journal.sqlite"
            )
        ),
    ),
    "newer-journal": (
        journal.journal_of_another_version_ends_it,
        lambda folder, _: test_journal_damage.test_a_file_of_a_newer_version_is_kept_and_taken_over(
            folder / "state" / "journal.sqlite"
        ),
    ),
    "tasks": (
        placing.tasks_die_silently,
        lambda *_: test_supervise.test_a_task_that_fails_once_is_begun_again(
            test_supervise.fails, "ZeroDivisionError: oh"
        ),
    ),
    "issued-again": (
        placing.requests_by_id_alone,
        lambda *_: test_faults.test_a_crash_loses_the_newest_jobs_and_issues_their_ids_again(),
    ),
    "workout": (windows_end_at_a_disk_error, lambda _, monkeypatch: test_storage.calculates_again(monkeypatch)),
    "sizes": (
        every_size_is_listed,
        lambda _, monkeypatch: test_resize.test_a_size_on_a_huge_cluster_is_judged_without_looking_at_all_of_them(
            monkeypatch
        ),
    ),
    "claimed-ranks": (
        agents.claimed_ranks_are_enumerated,
        lambda *_: test_preemptibility.test_a_world_size_that_a_job_claims_costs_no_memory(),
    ),
    "claimed-steps": (
        agents.claimed_steps_add_up,
        lambda *_: test_registry.test_programs_that_claim_many_steps_one_after_the_other_never_claim_too_many(Node()),
    ),
    "bad-row": (
        agents.one_bad_row_costs_all,
        lambda *_: test_encode.test_a_job_that_cannot_be_encoded_costs_no_other_job_its_message(),
    ),
    "bad-measurement": (
        agents.one_bad_row_costs_all,
        lambda _, monkeypatch: test_registry.test_a_row_that_cannot_be_made_costs_no_other_job_its_row(
            Node(), monkeypatch
        ),
    ),
    "loading": (
        agents.errors_of_loading_are_damage,
        lambda folder, _: sound().test_an_intact_checkpoint_that_cannot_be_loaded_is_refused_and_stays(folder),
    ),
    "later-format": (
        agents.later_formats_are_damage,
        lambda folder, _: sound().test_a_manifest_of_a_later_format_is_refused_and_stays(folder),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_test_of_a_defect_fails_with_the_defect(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defect, test = CASES[name]
    (tmp_path / "sound").mkdir()
    with monkeypatch.context() as patches:
        await _run(test(tmp_path / "sound", patches))  # so that nothing but the defect makes it fail
    with defect(), pytest.raises((Exception, asyncio.CancelledError, pytest.fail.Exception)):
        await _run(test(tmp_path, monkeypatch))


async def _run(result: Any) -> None:
    if inspect.isawaitable(result):
        await result
