"""The number of examples in a batch, as the program's DataLoader was created with it.

The program asks a DataLoader for an iterator about once in each epoch; the batch size is read there. The DataLoader that was
iterated last before an optimizer's first step is assumed to be the one that this optimizer trains on. If it is another one (a
program may well prepare an evaluation first), the number still distinguishes runs of one script, which is all it is used for.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from .step_counter import StepCounter

_MAX_BATCH_SIZE = 2**53


def hook_loaders(counter: StepCounter) -> None:
    """Record the batch size whenever a DataLoader is iterated. Does nothing if this torch has no such class."""
    module = sys.modules.get("torch.utils.data.dataloader")
    iterator: Any = getattr(module, "_BaseDataLoaderIter", None)
    if iterator is None:
        return
    plain = iterator.__init__

    @functools.wraps(plain)
    def begin(self: Any, loader: Any, *arguments: Any, **more: Any) -> None:
        plain(self, loader, *arguments, **more)
        try:
            counter.note_loader(batch_size(loader))
        except Exception:
            # A loader that is not torch's may lack any attribute.
            pass

    iterator.__init__ = begin


def batch_size(loader: Any) -> int:
    """Return the size of the loader's batches; 0 = not known, as when the program makes the batches itself."""
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) and not isinstance(size, bool) and 0 < size < _MAX_BATCH_SIZE else 0
