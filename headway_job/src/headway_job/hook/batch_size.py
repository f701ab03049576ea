"""How many examples a batch has: what the program's DataLoader was told.

The program asks a DataLoader for an iterator about once an epoch; there it is looked at. The loader that was asked last before an
optimizer's first step is taken for the one that this optimizer trains on. Where that is another (somebody may well prepare an
evaluation first), the number tells runs of one script apart all the same: all it is used for.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from .step_counter import Tally

_MOST = 2**53


def hook_loaders(tally: Tally) -> None:
    """Where this torch has no such class, batch sizes are not known."""
    module = sys.modules.get("torch.utils.data.dataloader")
    iterator: Any = getattr(module, "_BaseDataLoaderIter", None)
    if iterator is None:
        return
    plain = iterator.__init__

    @functools.wraps(plain)
    def begin(self: Any, loader: Any, *arguments: Any, **more: Any) -> None:
        plain(self, loader, *arguments, **more)
        try:
            tally.loading = batch_size(loader)
        except Exception:
            # A loader that is none of torch's may lack anything that is asked of it.
            pass

    iterator.__init__ = begin


def batch_size(loader: Any) -> int:
    """Of its batches; 0: not known, as where the program makes them itself."""
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) and not isinstance(size, bool) and 0 < size < _MOST else 0
