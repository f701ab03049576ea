"""The names of a run's objects, compared with those of the checkpoint that it restores.

An object that the checkpoint lacks would train on from its initial state, and the state of one that the run does not give would be
lost with the next saves. So a run with other names than its checkpoint is refused, unless the script has named the difference.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Sequence, Tuple

from .errors import Refused
from .ranks.rank_group import RankGroup, max_over_ranks


def as_names(optional: Any) -> Tuple[str, ...]:
    """Return the names in the option `optional` of a script. Raises Refused if it is not a name or a list of names."""
    names = (optional,) if isinstance(optional, str) else optional
    if not isinstance(names, (list, tuple, set, frozenset)) or not all(isinstance(name, str) for name in names):
        raise Refused(f"headway_job.checkpoint: optional must be a list of names, such as ['ema'], not {optional!r}.")
    return tuple(sorted(names))


def may_differ(name: str, optional: Sequence[str]) -> bool:
    """Return True if the script has named this object as optional, itself or as part of its list (`model.0` of `model`)."""
    return name in optional or name.split(".", maxsplit=1)[0] in optional


def check(
    given: Mapping[str, bool],
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
    optional: Sequence[str],
    ranks: RankGroup,
    *,
    saved_here: bool,
    what: str,
) -> None:
    """Raise Refused, on all ranks or on none, if the run's names are not those of the checkpoint.

    `given`: name -> True if rank 0's state is saved for all ranks. `shared`, `own`: the saved states, by name; `shared` is equal on
    all ranks. `saved_here`: the checkpoint has a state of this rank's own; otherwise `own` is that of rank 0, which may have had
    more objects. `what`: the checkpoint, for the message.
    """
    lacking = [name for name, is_shared in given.items() if name not in (shared if is_shared else own)]
    # Rank 0 may be the only one with an object, such as an average of the model.
    saved = sorted(shared)
    used = max_over_ranks(ranks, *(int(name in given) for name in saved)) if saved else []
    left = [name for name, is_used in zip(saved, used) if not is_used]
    left += [name for name in own if saved_here and name not in given]
    lacking, left = (_strict(names, optional) for names in (lacking, left))
    (differs,) = max_over_ranks(ranks, int(bool(lacking or left)))
    if differs:
        raise Refused(_message(what, lacking, left))


def _strict(names: Iterable[str], optional: Sequence[str]) -> List[str]:
    return sorted(name for name in names if not may_differ(name, optional))


def _message(what: str, lacking: List[str], left: List[str]) -> str:
    if not lacking and not left:
        return f"{what} was saved with other objects than those of another rank, whose log says which."
    found = []
    if lacking:
        found.append(f"it has no state of {', '.join(lacking)}, which this run would train from the beginning")
    if left:
        found.append(f"its state of {', '.join(left)} would be lost, as this run has no object of that name")
    return (
        f"{what} was saved with other objects: {'; and '.join(found)}. Nothing was changed. Give headway_job.checkpoint each "
        f"object under the name with which it was saved. For what was added or left out on purpose, add optional="
        f"{lacking + left!r}. To begin at step 0, give another folder."
    )
