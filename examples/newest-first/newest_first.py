"""A complete policy: the newest jobs first, each at its best fit."""

from policies.api import Decision, PolicySpec
from policies.model import ClusterState
from policies.selection import fill


class NewestFirst:
    """Waiting jobs by submission, newest first; running jobs stay. At most `limit` waiting jobs are considered."""

    spec = PolicySpec(name="newest-first", source="an example")

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit

    def decide(self, state: ClusterState) -> Decision:
        """Start, newest first, every waiting job that fits when its turn comes."""
        return fill(state, state.pending[::-1][: self._limit])
