"""The folder of a run: in the default one, which depends on the script's name only, each program of a job has its own.

The first program of a job takes the default folder itself, and leaves a mark there with its digest and the start of the job. One
with other arguments that finds the mark of the same start, or that has been apart before, takes a folder within it. After another
start, arguments may differ in what each start has anew (names of nodes, ports, times): so a program that no mark knows takes the
default folder, unless several programs use it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Any, List, NamedTuple, Optional, Sequence

from .. import job_log
from . import program
from .program import Program
from .ranks.rank_group import RankGroup, SingleRank, max_over_ranks
from .stores.base import Store
from .stores.location import default_url, open_store, program_folder

_MARK = re.compile(r"program-([0-9a-f]{8})-([A-Za-z0-9.]+)")
_CLAIM = "claim"


class RunFolder(NamedTuple):
    """The store of a run, and the program to which the run belongs, both the same on all ranks."""

    store: Store
    program: Program


def open_run_folder(url: Any, name: Optional[str], ranks: RankGroup) -> RunFolder:
    """Open the store of a run, on all ranks. Raises Refused. `url`: a store, or text; `url` and `name` are used as they are."""
    (number,) = max_over_ranks(ranks, program.number_of_this() if ranks.rank == 0 else 0)
    this = program.numbered(number, os.environ)
    if url is not None and not isinstance(url, str):
        return RunFolder(url, this)
    single_rank = isinstance(ranks, SingleRank)
    if url is not None or name is not None:
        return RunFolder(open_store(url, name, single_rank=single_rank), this)
    url = default_url(None, single_rank=single_rank)
    store = open_store(url, None, single_rank=single_rank)
    (apart,) = max_over_ranks(ranks, int(ranks.rank == 0 and _taken_apart(store, this)))
    if not apart:
        return RunFolder(store, this)
    folder = program_folder(this.digest)
    if ranks.rank == 0:
        job_log.write_line(
            f"other arguments were given to the program whose checkpoints are in {store.where}, or it was started in another "
            f"folder; so this one has its own: {folder} within it"
        )
    return RunFolder(open_store(f"{url}/{folder}", None, single_rank=single_rank), this)


def is_apart(names: Sequence[str], this: Program) -> bool:
    """Return True if the program has to have a folder of its own. `names`: those in the default folder."""
    if program_folder(this.digest) in names or _others_of_this_start(names, this):
        return True
    known = {match.group(1) for match in map(_MARK.fullmatch, names) if match}
    return this.digest not in known and any(name.startswith(program_folder("")) for name in names)


def _taken_apart(store: Store, this: Program) -> bool:
    """Take the default folder, or one within it, and return True for the second."""
    try:
        names = store.folders()
        apart = is_apart(names, this)
        if not apart:
            mark = f"program-{this.digest}-{this.start}"
            _leave(store, mark, names)
            names = store.folders()
            apart = _others_of_this_start(names, this)  # one that has begun at the same moment: it sees this mark, too
            for name in () if apart else names:
                if _MARK.fullmatch(name) and name != mark:
                    with suppress(Exception):  # it does no harm
                        store.remove(name, _CLAIM)
        if apart:
            _leave(store, program_folder(this.digest), names)
    except Exception:
        # A store that cannot be reached. Where checkpoints are looked for, the run is refused with advice.
        return False
    return apart


def _others_of_this_start(names: Sequence[str], this: Program) -> bool:
    found = [match.groups() for match in map(_MARK.fullmatch, names) if match]
    return any(start == this.start and digest != this.digest for digest, start in found)


def _leave(store: Store, folder: str, names: List[str]) -> None:
    """Create a folder in that of the run, unless it is there."""
    if folder in names:
        return
    with suppress(
        Exception
    ):  # a full disk, or one that is read-only: the checkpoints there can be restored nevertheless
        store.make(folder)
        if folder not in store.folders():  # an object store has no empty folders
            store.write(folder, _CLAIM, lambda _file: None)
