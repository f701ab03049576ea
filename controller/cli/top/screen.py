"""The contents of `headway top`: a few lines on the controller, and the jobs in an order that the user chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from controller.base.text import duration
from controller.cli.render.jobs import STATE_COLOURS, place_and_steps, starts_in
from controller.cli.render.status import status_colours, status_lines
from controller.cli.render.terminal import safe_text

if TYPE_CHECKING:
    from rich.text import Text

    from protos.headway.v1 import admin_pb2

COLUMNS = ("JOB", "USER", "NAME", "STATE", "GPUS", "WAIT", "STARTS IN", "WHERE OR WHY")
"""Headings of the columns; `rows` has a cell for each."""
_ALWAYS = frozenset({"policy", "guard", "trained range", "jobs", "gpus", "preemptions", "trouble", "last error"})
"""Names of the lines of `headway status` that `headway top` shows too."""
_NAME_WIDTH = 24


class Order(Enum):
    """An order of the jobs."""

    POLICY = "the policy's order"
    WAIT = "longest wait first"
    GPUS = "most GPUs first"
    USER = "by user"
    START = "soonest start first"

    @property
    def next(self) -> Order:
        """The order after this one; after the last comes the first."""
        orders = list(Order)
        return orders[(orders.index(self) + 1) % len(orders)]


_KEYS: dict[Order, Callable[[admin_pb2.QueueEntry], tuple[float | str, ...]]] = {
    Order.WAIT: lambda entry: (-entry.wait_s,),
    Order.GPUS: lambda entry: (-entry.num_gpus,),
    Order.USER: lambda entry: (entry.user,),
    # Jobs without an estimate come last.
    Order.START: lambda entry: (entry.start.median_s if entry.HasField("start") else inf,),
}


@dataclass(frozen=True)
class Choice:
    """Which jobs are shown, and in which order."""

    order: Order = Order.POLICY
    user: str | None = None
    """Only jobs of this user; None: of all."""
    states: frozenset[str] = frozenset()
    """Only jobs in these states; empty: in any."""
    text: str = ""
    """Only jobs that have this in their id, user, name, placement or reason; upper and lower case are the same."""

    def with_next_order(self) -> Choice:
        """Return the same choice of jobs in the next order."""
        return replace(self, order=self.order.next)

    def of_jobs(self, entries: Iterable[admin_pb2.QueueEntry]) -> list[admin_pb2.QueueEntry]:
        """Return the chosen jobs in their order; jobs that are equal in it stay in the policy's."""
        chosen = [entry for entry in entries if self._has(entry)]
        return sorted(chosen, key=_KEYS[self.order]) if self.order in _KEYS else chosen

    def _has(self, entry: admin_pb2.QueueEntry) -> bool:
        if self.user not in {None, entry.user} or (self.states and entry.state not in self.states):
            return False
        texts = (entry.job_id, entry.user, entry.name, entry.placement, entry.why)
        return not self.text or any(self.text.casefold() in text.casefold() for text in texts)

    def sentence(self, chosen: int, shown: int, jobs: int) -> str:
        """Return what is shown: numbers of chosen, shown and all jobs, the order and the filters."""
        parts = [f"{shown} of {chosen} jobs" if shown < chosen else f"{chosen} jobs", self.order.value]
        if self.user is not None:
            parts.append(f"user {self.user}")
        if self.states:
            parts.append(f"state {' or '.join(sorted(self.states))}")
        if self.text:
            parts.append(f'with "{self.text}"')
        if chosen < jobs:
            parts.append(f"{jobs - chosen} filtered out")
        return ", ".join(parts)


def header(status: admin_pb2.Status) -> list[tuple[Text, Text]]:
    """Return names and values of the lines above the table: policy, jobs, GPUs, and what is wrong."""
    colours = status_colours(status)
    return [
        (safe_text(name, "bold"), safe_text(value, colours.get(name, "")))
        for name, value in status_lines(status)
        if name in _ALWAYS or colours.get(name)
    ]


def rows(entries: Iterable[admin_pb2.QueueEntry], limit: int, now_s: float) -> Iterator[tuple[str, tuple[Text, ...]]]:
    """Yield the id of each job with the cells of its row (see `COLUMNS`), for at most `limit` jobs.

    `now_s`: the time of the answer, seconds since the Unix epoch.
    """
    for entry in islice(entries, limit):
        cells = (
            safe_text(entry.job_id),
            safe_text(entry.user),
            safe_text(entry.name[:_NAME_WIDTH]),
            safe_text(entry.state, STATE_COLOURS.get(entry.state, "")),
            safe_text(str(entry.num_gpus)),
            safe_text(duration(entry.wait_s)),
            safe_text(starts_in(entry, now_s)),
            safe_text(place_and_steps(entry)),
        )
        yield entry.job_id, cells
