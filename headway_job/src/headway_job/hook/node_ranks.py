"""The ranks that run on the node of this process, as its launcher has written them into its environment. Pure.

They are taken from the environment only where it is certain which ranks they are, and where the launcher's rank and world size are
those of torch.distributed: nothing is asked of other ranks, as a collective of ours could change how the program runs.
"""

from __future__ import annotations

from typing import FrozenSet, Mapping, Optional

_MAX_TEXT = 65_536


def ranks_of_node(rank: int, world_size: int, environment: Mapping[str, str]) -> Optional[FrozenSet[int]]:
    """Return the ranks on this node, with `rank` itself; None = not known."""
    if not 0 <= rank < world_size:
        return None
    return _by_torchrun(rank, world_size, environment) or _by_slurm(rank, world_size, environment)


def _by_torchrun(rank: int, world_size: int, environment: Mapping[str, str]) -> Optional[FrozenSet[int]]:
    """Return the ranks of this process's agent of torchrun. It numbers them in one run, in the order of their local ranks.

    Where several of these agents run on a node, their ranks count as those of different nodes.
    """
    if "GROUP_RANK" not in environment or (_number(environment, "RANK"), _number(environment, "WORLD_SIZE")) != (
        rank,
        world_size,
    ):
        return None
    local_rank, local_size = _number(environment, "LOCAL_RANK"), _number(environment, "LOCAL_WORLD_SIZE")
    if local_rank is None or local_size is None or not local_rank < local_size:
        return None
    first = rank - local_rank
    return frozenset(range(first, first + local_size)) if 0 <= first <= world_size - local_size else None


def _by_slurm(rank: int, world_size: int, environment: Mapping[str, str]) -> Optional[FrozenSet[int]]:
    """Return the tasks of this step on this node, whatever their distribution. One task may be one rank only."""
    if (_number(environment, "SLURM_PROCID"), _number(environment, "SLURM_STEP_NUM_TASKS")) != (rank, world_size):
        return None
    text = environment.get("SLURM_GTIDS", "")
    words = text.split(",") if len(text) <= _MAX_TEXT else []
    numbers = [_whole(word) for word in words]
    found = frozenset(number for number in numbers if number is not None and number < world_size)
    return found if len(found) == len(words) and rank in found else None


def _number(environment: Mapping[str, str], name: str) -> Optional[int]:
    return _whole(environment.get(name, ""))


def _whole(text: str) -> Optional[int]:
    """Return the text as a whole number >= 0; None = it is none."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None
