"""Preemptions: what each cost, and how many there were by cause and outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headway_client import PreemptionList, PreemptionRecord

from controller.base.apart import each

SHOWN = 200


@dataclass(frozen=True, slots=True)
class Preempted:
    """One preemption. Cost: time from the save (or the stop) to the first step, or start, of the next run, seconds."""

    record: PreemptionRecord
    cost_s: float | None
    """None: it has not run again."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Preemptions of one cause."""

    cause: str
    count: int
    resumed: int
    called_off: int
    open: int
    mean_cost_s: float | None


def rows(found: PreemptionList) -> list[Preempted]:
    """Return the newest preemptions."""
    newest = found.preemptions[:SHOWN]
    return each("rows of web pages", newest, lambda one: Preempted(one, cost_s(one)), lambda one: one.job_id)


def outcomes(found: PreemptionList) -> list[Outcomes]:
    """Return the outcomes by cause, the most frequent cause first."""
    causes = Counter(str(record.cause) for record in found.preemptions)
    return [
        _outcomes(cause, [each for each in found.preemptions if each.cause == cause])
        for cause, _ in causes.most_common()
    ]


def _outcomes(cause: str, records: list[PreemptionRecord]) -> Outcomes:
    costs = [cost for record in records if (cost := cost_s(record)) is not None]
    stages = Counter(str(record.stage) for record in records)
    return Outcomes(
        cause, len(records), stages["resumed"] + stages["started"], stages["called off"],
        sum(record.open for record in records), sum(costs) / len(costs) if costs else None,
    )  # fmt: skip


def cost_s(record: PreemptionRecord) -> float | None:
    """Return the time that a job lost, seconds; None while it does not run again."""
    ready_s = record.saved_s if record.saved_s is not None else record.stopped_s
    again_s = record.resumed_s if record.resumed_s is not None else record.started_s
    return None if ready_s is None or again_s is None else max(again_s - ready_s, 0.0)
