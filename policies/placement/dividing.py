"""Divide a job's GPUs among nodes: the loops that several placement rules share.

Each function takes rooms, pairs of a node and the GPUs that the job could take there, and returns shares, pairs of a node and the
GPUs that the job gets there. The order of the rooms is the rule's. The functions know no cluster state, so simulators use them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile

Room = tuple[int, int]
"""(node, GPUs that the job could take there)."""
Shares = list[tuple[int, int]]
"""(node, GPUs) of one job."""


def in_order(rooms: Iterable[Room], gpus: int, min_nodes: int, max_nodes: int, *, tight: bool = False) -> Shares | None:
    """Return all that the first node has, then all of the next, until the job has enough; None when it does not fit.

    As many GPUs are left for later nodes as `min_nodes` requires. With `tight` the remainder goes to the smallest room that is left
    and takes it.
    """
    left = iter(rooms)
    shares: Shares = []
    for node, room in left:
        owed = max(0, min_nodes - len(shares) - 1)
        share = min(room, gpus - owed)
        if share <= 0 or len(shares) == max_nodes:
            return None
        last = tight and share == gpus
        shares.append((_smallest(chain(((node, room),), left), gpus) if last else node, share))
        gpus -= share
        if gpus == 0:
            return shares
    return None


def evenly(rooms: Sequence[Room], gpus: int, counts: Iterable[int]) -> Iterator[Shares]:
    """Yield equal shares on the first nodes with room for them, for each number of nodes in `counts` where that is possible."""
    for count in counts:
        fitting = [node for node, room in rooms if room * count >= gpus]
        if len(fitting) >= count:
            yield [(node, gpus // count) for node in fitting[:count]]


def packed(rooms: Iterable[Room], gpus: int) -> Shares | None:
    """Return the shares that SCHED2's packing gives (Luan et al., section II-B); None when the job does not fit.

    `rooms` come with the most GPUs first, the lowest node index first on ties. "The algorithm first tries to find the server with
    the fewest free GPUs that can satisfy the job's GPU demand if possible. If there is no such server, the algorithm chooses the
    server with the most amount of free GPUs, and then the remaining GPU requirement will be satisfied by the above logic again."
    The paper leaves ties open; here the lowest index decides.
    """
    left = iter(rooms)
    shares: Shares = []
    for node, room in left:
        if room >= gpus:
            break
        shares.append((node, room))
        gpus -= room
    else:
        return None
    fitting = takewhile(lambda entry: entry[1] >= gpus, chain(((node, room),), left))
    return [*shares, (_smallest(fitting, gpus), gpus)]


def _smallest(rooms: Iterable[Room], gpus: int) -> int:
    """Return the node with the smallest room that takes so many GPUs, the lowest index on ties."""
    return min((room for room in rooms if room[1] >= gpus), key=lambda room: (room[1], room[0]))[0]
