"""The jobs on every link."""

from __future__ import annotations

from collections.abc import Iterable


class LinkUse:
    """Jobs on every link. Invariant: only links in use are in `jobs`; the jobs of a link are in order of their rows.

    The values of `jobs` are never changed in place, so copying the dict copies everything.
    """

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[int, ...]] = {}

    def add(self, job: int, links: Iterable[int]) -> None:
        """Add the job to these links; it used none of them before."""
        for link in links:
            others = self.jobs.get(link)
            self.jobs[link] = (job,) if others is None else tuple(sorted((*others, job)))

    def remove(self, job: int, links: Iterable[int]) -> None:
        """Remove the job from these links."""
        for link in links:
            left = tuple(other for other in self.jobs[link] if other != job)
            if left:
                self.jobs[link] = left
            else:
                del self.jobs[link]

    def copy(self) -> LinkUse:
        """Return an independent copy, in time proportional to the links in use."""
        twin = LinkUse()
        twin.jobs = self.jobs.copy()
        return twin
