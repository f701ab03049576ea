"""The options and objects of all ranks, compared when a run begins: rank 0's state of models and optimizers is saved for all.

If another rank had other tensors, they would not be saved, and rank 0's would be loaded in their place.
"""

from __future__ import annotations

import zlib
from typing import Any, Dict, List, Mapping, NamedTuple

from .errors import Refused
from .ranks.rank_group import RankGroup, max_over_ranks
from .state.dtensor import ABSENT, OWN, SHARED, Signature

_BELOW_ALL = -(1 << 62)
"""Less than any signature and its negative."""


class OwnObjects(NamedTuple):
    """The objects that each rank saves by itself, compared over all ranks."""

    divided: List[str]
    """Names of those that have different tensors on the ranks: another number of ranks cannot use them."""
    least_bytes: Dict[str, int]
    """Name -> the least memory that a rank needs for a copy of them; 0 if a rank has none."""


def check(signatures: Mapping[str, Signature], options: Any, ranks: RankGroup) -> OwnObjects:
    """Raise Refused, on all ranks or on none, if options or objects differ. `options`: values of which repr says all.

    `signatures`: name -> the tensors of its objects, also for names without an object.
    """
    names = sorted(signatures)
    number = zlib.crc32(repr((options, names)).encode())
    high, low = max_over_ranks(ranks, number, -number)
    if high != -low:
        raise Refused(
            "The ranks give headway_job.checkpoint different options. every_steps, keep, continue_from, optional and the names "
            "of the objects must be the same on all ranks, as otherwise one rank saves while another one trains."
        )
    votes = [_vote(signatures[name], ranks.rank) for name in names]
    maxima = max_over_ranks(ranks, *(value for vote in votes for value in vote))
    size = len(maxima) // len(names)
    found = {name: _Compared(*maxima[place * size : (place + 1) * size]) for place, name in enumerate(names)}
    unequal = [name for name, compared in found.items() if not compared.may_be_shared]
    if unequal:
        raise Refused(
            f"The ranks have models or optimizers with different tensors: {', '.join(unequal)}. headway_job.checkpoint saves "
            "rank 0's for all ranks, so those of the others would be lost. Give models that have the same tensors on all ranks. "
            "If each rank has its own, give an object that is neither a torch.nn.Module nor an optimizer, with their state_dict "
            "and load_state_dict: each rank saves its own. For sharded ones, use torch.distributed.checkpoint in the script."
        )
    return OwnObjects(
        [name for name, compared in found.items() if compared.divided],
        {name: -compared.own_bytes_low for name, compared in found.items()},
    )


class _Compared(NamedTuple):
    """The maxima of all ranks' votes about a name. In a list with shared objects, only these count, except for `divided`."""

    high: int
    low: int
    own: int
    shared: int
    absent: int
    absent_on_0: int
    sharded: int
    others_high: int
    others_low: int
    own_bytes_low: int

    @property
    def divided(self) -> bool:
        """True if ranks have different tensors in objects that each of them saves by itself."""
        others_differ = self.others_high not in (-self.others_low, _BELOW_ALL)
        return others_differ if self.shared else self.differ

    @property
    def differ(self) -> bool:
        """True if ranks that have the object have different tensors in it."""
        return self.high not in (-self.low, _BELOW_ALL)

    @property
    def may_be_shared(self) -> bool:
        """True if rank 0's state is that of all ranks, or if each rank saves its own."""
        lost = self.differ or self.own or self.absent_on_0 or (self.sharded and self.absent)
        return not (self.shared and lost)


def _vote(given: Signature, rank: int) -> List[int]:
    """Return what a rank contributes to the maxima of all ranks."""
    absent = given.kind == ABSENT
    return [
        _BELOW_ALL if absent else given.number,
        _BELOW_ALL if absent else -given.number,
        int(given.kind == OWN),
        int(given.kind == SHARED),
        int(absent),
        int(absent and rank == 0),
        int(given.sharded),
        _BELOW_ALL if absent else given.others,
        _BELOW_ALL if absent else -given.others,
        -given.own_bytes,
    ]
