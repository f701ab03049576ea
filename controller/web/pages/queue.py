"""The queue: jobs that a filter chooses, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from headway_client import Queue, QueueEntry

from controller.base.start_text import past_of_all

PAGE = 200
"""Jobs on one page."""
STATES = ("waiting", "starting", "yielded", "running", "ineligible")
MOST_TEXT = 256


@dataclass(frozen=True, slots=True)
class Filter:
    """A reader's choice of jobs; empty fields choose everything."""

    user: str = ""
    state: str = ""
    partition: str = ""
    reason: str = ""
    page: int = 1

    def has(self, entry: QueueEntry) -> bool:
        """Return whether the job is chosen."""
        return (
            (not self.user or entry.user == self.user)
            and (not self.state or entry.state == self.state)
            and (not self.partition or self.partition in entry.partition.split(","))
            and (not self.reason or entry.waits_for == self.reason)
        )

    def query(self, page: int) -> str:
        """Return the query of another page of the same choice."""
        fields = {"user": self.user, "state": self.state, "partition": self.partition, "reason": self.reason}
        return urlencode({name: value for name, value in fields.items() if value} | {"page": page})


@dataclass(frozen=True, slots=True)
class QueuePage:
    """One page of the chosen jobs."""

    rows: tuple[tuple[int | None, QueueEntry], ...]
    """Place among all waiting jobs, and the job; None: it does not wait for a policy."""
    chosen: int
    jobs: int
    pages: int
    partitions: tuple[str, ...]

    @property
    def past(self) -> str:
        """How good earlier estimates of starts were, as a sentence; empty if no job of the page has an estimate."""
        starts = [entry.start for _, entry in self.rows if entry.start is not None]
        return past_of_all((start.held, start.known, start.stand_in) for start in starts)


def parse_filter(query: Mapping[str, str]) -> Filter:
    """Return the filter in an address's query. Raises ValueError, which says what is wrong and what to give."""
    texts = {name: query.get(name, "").strip() for name in ("user", "state", "partition", "reason")}
    for name, text in texts.items():
        if len(text) > MOST_TEXT:
            raise ValueError(f"{name} has {len(text)} characters; give at most {MOST_TEXT}")
    if texts["state"] and texts["state"] not in STATES:
        raise ValueError(f"state {texts['state'][:40]!r} is unknown; give one of {', '.join(STATES)}")
    page = query.get("page", "").strip() or "1"
    if not (page.isascii() and page.isdecimal() and len(page) <= 6 and int(page) >= 1):
        raise ValueError(f"page {page[:40]!r} is no number of a page; give 1 or more")
    return Filter(page=int(page), **texts)


def queue_page(queue: Queue, wanted: Filter) -> QueuePage:
    """Return that page of the chosen jobs, or the last page where there are fewer."""
    found: list[tuple[int | None, QueueEntry]] = []
    place = 0
    for entry in queue.entries:
        waits = entry.state == "waiting"
        place += waits
        if wanted.has(entry):
            found.append((place if waits else None, entry))
    pages = max(-(-len(found) // PAGE), 1)
    begin = (min(wanted.page, pages) - 1) * PAGE
    partitions = sorted({name for entry in queue.entries for name in entry.partition.split(",") if name})
    return QueuePage(tuple(found[begin : begin + PAGE]), len(found), len(queue.entries), pages, tuple(partitions))
