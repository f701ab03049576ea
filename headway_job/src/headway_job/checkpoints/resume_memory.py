"""The memory that a resume needs, compared with what is left before anything is read: the kernel would kill the job."""

from __future__ import annotations

import os

from .catalog import OLDER_SUFFIX, Catalog, Manifest
from .errors import Refused
from .ranks.rank_group import RankGroup, max_over_ranks
from .state import memory, state_dict


def check(catalog: Catalog, folder: str, manifest: Manifest, ranks: RankGroup) -> None:
    """Raise Refused, on all ranks or on none, if a node has less memory left than its ranks certainly need for a checkpoint.

    Each rank measures before any of them reads. It knows what it needs itself, and what each other rank of its node needs at least:
    which ranks these are, it does not know.
    """
    left_bytes = memory.most_bytes()
    others = ranks_here(ranks) - 1
    mine_bytes = needed_bytes = 0
    # The header of rank 0's file is read only if there may be too little.
    if left_bytes is not None and _most_bytes(manifest) * (others + 1) > left_bytes:
        shared_bytes = _shared_bytes(catalog, folder, manifest)
        mine_bytes = _rank_bytes(manifest, ranks.rank, shared_bytes)
        needed_bytes = mine_bytes + others * _least_bytes(manifest, ranks.world_size, shared_bytes)
    too_little = left_bytes is not None and needed_bytes > left_bytes
    if any(max_over_ranks(ranks, int(too_little))):
        why = (
            f"(rank {ranks.rank} needs {mine_bytes / 2**20:.0f} MiB for it, all {others + 1} ranks of this node at least "
            f"{needed_bytes / 2**20:.0f} MiB, and {(left_bytes or 0) / 2**20:.0f} MiB are left of what Slurm gives the job here)"
            if too_little
            else "of another rank, whose log says how much is missing"
        )
        raise Refused(
            f"Checkpoint {folder} in {catalog.store.where} is intact, but does not fit into the memory {why}. It was not read, the "
            "run does not begin at step 0, and nothing was changed. Request more memory (--mem), or fewer tasks on each node."
        )


def ranks_here(ranks: RankGroup) -> int:
    """Return the number of ranks of the run on this node, according to the launcher."""
    return min(memory.ranks_here(os.environ), ranks.world_size)


def _rank_bytes(manifest: Manifest, rank: int, shared_bytes: int) -> int:
    """Return the memory that a rank needs: for what is shared and for its own file, or for the whole of rank 0's file."""
    own_file = manifest.own_file(rank)
    return manifest.files[own_file].size_bytes + (shared_bytes if own_file != manifest.state_file(0) else 0)


def _least_bytes(manifest: Manifest, world_size: int, shared_bytes: int) -> int:
    """Return the least memory that one of so many ranks needs. Ranks that are new need as much as rank 0."""
    return min(_rank_bytes(manifest, rank, shared_bytes) for rank in range(min(world_size, manifest.world_size)))


def _most_bytes(manifest: Manifest) -> int:
    """Return memory that is enough for each rank."""
    sizes = [manifest.files[manifest.state_file(rank)].size_bytes for rank in range(manifest.world_size)]
    return sizes[0] + max(sizes[1:], default=0)


def _shared_bytes(catalog: Catalog, folder: str, manifest: Manifest) -> int:
    """Return the part of rank 0's file for which every rank uses memory: all but rank 0's own objects. 0 = it cannot be read."""
    first_file = manifest.state_file(0)
    if first_file.endswith(OLDER_SUFFIX):
        return manifest.files[first_file].size_bytes
    try:
        with catalog.store.read(folder, first_file) as file:
            return state_dict.shared_bytes(file)
    except Exception:
        return 0  # the ranks report it when they read it
