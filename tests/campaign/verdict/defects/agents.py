"""Defects of agents and of what runs inside jobs: numbers that jobs claim, and sound checkpoints that are given up.

Each function puts one of them back for as long as its context lasts. What they do is described as in the reviews. Stories have
agents without processes, so the defects are not in the catalogue: tests of the parts find them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from controller.preempt import preemptibility
from nodeagent.jobsocket.job_run import JobRun
from nodeagent.wire.guarded_rows import RowGuard
from tests.campaign.verdict.defects.patches import patched


def claimed_ranks_are_enumerated() -> AbstractContextManager[None]:
    """Why a job cannot be preempted is found in a set of all ranks that it claims to have: 100 MB for each million."""
    real = preemptibility._missing

    def missing(ranks: Collection[int], saving: Collection[int], size: int) -> str:
        there = set(range(size)) | set(ranks)
        return real(ranks, saving, size) if there - set(saving) else ""

    return patched(patch.object(preemptibility, "_missing", missing))


def claimed_steps_add_up() -> AbstractContextManager[None]:
    """The steps that a job claims are added up without a bound, over all its programs: in the end no message can hold them."""

    def count_steps(self: JobRun) -> int | None:
        steps = [process.steps.steps for process in self.stepping() if process.steps is not None]
        if steps:
            self.most_steps = max(self.most_steps, self.base_steps + min(steps))
        return self.most_steps or None

    return patched(patch.object(JobRun, "count_steps", count_steps))


def one_bad_row_costs_all() -> AbstractContextManager[None]:
    """A row that cannot be made, or sent, ends the agent's whole report, in every cycle."""

    def each(self: RowGuard, rows: Iterable[Any], make: Any) -> Iterator[tuple[Any, Any]]:
        del self
        for row in rows:
            yield row, make(row)

    return patched(patch.object(RowGuard, "each", each))


def errors_of_loading_are_damage() -> AbstractContextManager[None]:
    """A checkpoint whose SHA-256 is right is set aside if it cannot be loaded, whatever the reason: training begins at 0."""
    pytest.importorskip("torch")
    from headway_job.checkpoints import restore

    real = restore._load

    def load(catalog: Any, folder: str, manifest: Any, ranks: Any) -> Any:
        try:
            return real(catalog, folder, manifest, ranks)
        except restore.Refused:
            catalog.set_aside(folder)
            return restore.load_newest(catalog, ranks)

    return patched(patch.object(restore, "_load", load))


def later_formats_are_damage() -> AbstractContextManager[None]:
    """A manifest of a later version counts as damaged: going back to an earlier version of Headway throws progress away."""
    pytest.importorskip("torch")
    from headway_job.checkpoints import catalog

    def check_format(row: dict[str, Any]) -> None:
        if row.get("format") not in catalog._KINDS:
            raise catalog.Damaged("the manifest is not of this version")

    return patched(patch.object(catalog, "_check_format", check_format))
