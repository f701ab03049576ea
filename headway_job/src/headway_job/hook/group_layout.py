"""Where the ranks of this process's groups run, from torch and the environment. Nothing here raises."""

from __future__ import annotations

import os
import sys
from typing import Any, Optional, Tuple

from ..profiling.group_traffic import Layout, Place
from .node_ranks import ranks_of_node

_MAX_GROUPS = 4096
"""With more process groups than that, the layout is not known."""
_NOT_KNOWN = Layout(1, 0, {})


class GroupLayout:
    """Invariant: `value` is that of the newest groups; once torch.distributed is shut down, that of its last ones."""

    def __init__(self) -> None:
        self.value = _NOT_KNOWN
        self._num_groups = 0

    def update(self, world: Optional[Tuple[int, int]]) -> None:
        """Read the groups if their number has changed. `world`: rank and world size; None = not known."""
        try:
            core: Any = sys.modules.get("torch.distributed.distributed_c10d")
            state: Any = getattr(core, "_world", None)  # torch >= 2.0; older versions have names of the module
            names = state.pg_names if state is not None else core._pg_names
            members = state.pg_group_ranks if state is not None else core._pg_group_ranks
            if world is None or len(members) in (0, self._num_groups):
                return
            self.value, self._num_groups = _NOT_KNOWN, len(members)
            self.value = _layout(world, dict(members), names)
        except Exception:
            # There is no such module, this version has other names, or another thread has made a group meanwhile.
            pass


def _layout(world: Tuple[int, int], members: Any, names: Any) -> Layout:
    """Return the layout. `members`: for each group, its ranks by global rank."""
    rank, world_size = world
    here = ranks_of_node(rank, world_size, os.environ) or frozenset()
    own = {group: ranks for group, ranks in members.items() if rank in ranks}
    if len(own) > _MAX_GROUPS:
        return _NOT_KNOWN
    places = {str(names[group]): Place(len(ranks), sum(each in ranks for each in here)) for group, ranks in own.items()}
    return Layout(world_size, len(here), places)
