"""A run that continues another job: its own checkpoints come first, and it only reads those of the other job."""

from __future__ import annotations

import os
from typing import Optional

from .catalog import Catalog
from .errors import Refused
from .ranks.rank_group import RankGroup
from .restore import LoadedCheckpoint, load_newest
from .stores.location import open_earlier

VARIABLE = "HEADWAY_CONTINUE_FROM"


def wanted(option: Optional[str]) -> str:
    """Return the job, folder or URL to continue from; empty = none. The option of the script is preferred to the variable."""
    return str(option) if option is not None else os.environ.get(VARIABLE, "").strip()


def load_own_or_earlier(
    catalog: Catalog, source: str, name: Optional[str], ranks: RankGroup, digest: str
) -> Optional[LoadedCheckpoint]:
    """Load the newest checkpoint of this run; if it has none, that of `source`. On all ranks. Raises Refused.

    So a run that was requeued continues where it was, not where the other job was. If `source` has no checkpoint that can be used,
    the run is refused: it does not begin at step 0. `digest`: of this program, see `open_earlier`.
    """
    loaded = load_newest(catalog, ranks)
    if loaded is not None or not source:
        return loaded
    store = open_earlier(source, name, digest)
    found = None if store is None else load_newest(Catalog(store, keep=1, read_only=True), ranks)
    if found is None:
        raise Refused(
            f"There is no intact checkpoint to continue from: {source}{f' ({store.where})' if store is not None else ''}. The run "
            f"does not begin at step 0. Correct {VARIABLE} or continue_from, or leave it out."
        )
    return found
