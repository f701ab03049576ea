"""Objects of which each rank has saved other tensors, such as the stages of a pipeline: only as many ranks can use them again."""

from __future__ import annotations

from typing import Iterable, List, Sequence

from .errors import Refused
from .registered_names import may_differ


def check(divided: Iterable[str], before: int, now: int, optional: Sequence[str], *, what: str) -> None:
    """Raise Refused, on all ranks alike, if the number of ranks is another one. `what`: the checkpoint, for the message."""
    names = [name for name in divided if not may_differ(name, optional)]
    if names and before != now:
        raise Refused(
            f"{what} was saved by {before} ranks, each of which had other tensors in {', '.join(names)}, and this run has {now}: "
            f"parts would be lost, or used twice. Nothing was changed. Start it with {before} ranks. If the parts need not be "
            f"kept, add optional={names!r}."
        )


def unusable(divided: Iterable[str], own: Iterable[str], before: int, now: int) -> List[str]:
    """Return the names among `own` whose saved states this number of ranks cannot use: such objects, and members of such lists."""
    lists = set(divided) if before != now else set()
    return sorted(name for name in own if name in lists or name.split(".", maxsplit=1)[0] in lists)
