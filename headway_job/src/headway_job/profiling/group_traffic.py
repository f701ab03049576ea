"""How much of a collective passes the links between nodes, by where the ranks of its group run; pure functions.

The controller takes a rank's bytes for those of a ring through all nodes of the job, which passes each node once. A group within
one node sends nothing over its link. A group that spans nodes counts by its share; all its nodes are taken to have as many ranks:
- a node with 8 ranks, 2 of them in the group, has 4 such groups side by side, and its link carries what all of them send;
- of a ring through m nodes, (m - 1)/m of the bytes pass a link, so a group on fewer nodes than the job counts less.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Optional

ALL = 1.0
"""Share of a collective of all ranks of the job, and of one whose group is not known."""
_OF_EACH_RANK = "all_to_all"
"""Kind of which the controller itself counts all ranks of a node."""


class Place(NamedTuple):
    """A process group of this process."""

    size: int
    here: int
    """Number of its ranks that run on this node; 0 = not known."""


class Layout(NamedTuple):
    """Where the ranks of a job run."""

    world_size: int
    here: int
    """Number of ranks on this node; 0 = not known."""
    groups: Mapping[str, Place]
    """Places of this process's groups, by name. Bound: `_MAX_GROUPS` of hook/group_layout.py."""

    @property
    def divides(self) -> bool:
        """Return True if it is known what passes a link.

        On one node nothing does. There all bytes count, as it is not known which groups would span nodes if the job ran on several.
        """
        return 0 < self.here < self.world_size

    def link_share(self, kind: str, group: str) -> float:
        """Return the factor from a collective's bytes to those of a ring of all ranks that would load the links equally.

        `group`: name of its group; empty = not known.
        """
        place = self.groups.get(group) if group else self._alike(kind)
        if place is None or not place.here or not self.divides:
            return ALL
        return self._share(kind, place)

    def _share(self, kind: str, place: Place) -> float:
        share = (1 - place.here / place.size) / (1 - self.here / self.world_size)
        return share if kind == _OF_EACH_RANK else share * self.here / place.here

    def _alike(self, kind: str) -> Optional[Place]:
        """Return a group for which all groups of more than one rank may be taken, as they have the same share."""
        places = [place for place in self.groups.values() if place.size > 1]
        if not places or not self.divides or not all(place.here for place in places):
            return None
        return places[0] if len({self._share(kind, place) for place in places}) == 1 else None
