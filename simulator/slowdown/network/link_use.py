"""Who uses which link."""

from __future__ import annotations

from collections.abc import Iterable


class LinkUse:
    """Jobs on every link. Invariant: a link that nobody uses is not there; its jobs stand by row.

    The values of `jobs` are never changed in place, so that a copy of the dict is a copy of it all.
    """

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[int, ...]] = {}

    def add(self, job: int, links: Iterable[int]) -> None:
        """The job uses these links, none of which it used before."""
        for link in links:
            others = self.jobs.get(link)
            self.jobs[link] = (job,) if others is None else tuple(sorted((*others, job)))

    def remove(self, job: int, links: Iterable[int]) -> None:
        """The job uses these links no more."""
        for link in links:
            left = tuple(other for other in self.jobs[link] if other != job)
            if left:
                self.jobs[link] = left
            else:
                del self.jobs[link]

    def copy(self) -> LinkUse:
        """An independent copy, in time proportional to links in use."""
        twin = LinkUse()
        twin.jobs = self.jobs.copy()
        return twin
