"""Profiles of programs that were started with an older version of Headway's hook, as the present version would report them."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.wire.bounds import MAX_SIZE
from nodeagent.wire.frames import Collective, Hello, Model, Profile

_PARTS = "1"
"""Version that reports the size of this rank's part as the bytes of an all-gather, not that of the result."""


def of_present_version(profile: Profile, hello: Hello | None, model: Model | None) -> Profile:
    """Return the profile with the bytes of whole tensors.

    Which group gathered is not known. As in the hook, the smallest group of more than one rank counts, else all ranks.
    """
    if hello is None or hello.hook_version != _PARTS:
        return profile
    sizes = [group.size for group in model.groups if group.size > 1] if model is not None else []
    ranks = min(sizes, default=max(hello.world_size, 1))
    return replace(profile, kinds=tuple(_whole(use, ranks) for use in profile.kinds))


def _whole(use: Collective, ranks: int) -> Collective:
    return replace(use, bytes=min(use.bytes * ranks, float(MAX_SIZE))) if use.kind == "all_gather" else use
