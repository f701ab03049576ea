"""A trace in the common form (`simulator.traces.read`) in which jobs may request parts of a GPU, such as 0.5.

Parts are rounded up, or counted in shares (`simulator.traces.formats.parts`); the requested number is kept as requested_gpus.
Dropped: jobs without GPUs. All other columns are kept but `min_gpus` and `max_gpus`, which count whole GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulator.traces.formats.log import NO_GPUS, Column, Loaded, Log, Options, joined
from simulator.traces.formats.parts import in_shares
from simulator.traces.read import table_of

_SIZES = ("num_gpus", "min_gpus", "max_gpus")
_REQUESTED = "requested_gpus"


def load(paths: Sequence[Path], options: Options) -> Loaded:
    """Load the jobs of these traces."""
    return joined([_load(path, options.gpu_shares) for path in paths], paths)


def _load(path: Path, shares: int) -> Loaded:
    log = Log(table_of(path))
    gpus = log.numbers("num_gpus")
    log.drop(gpus == 0, NO_GPUS)
    requested = list(log.texts("num_gpus"))
    # A text that is no number of GPUs stays as it is, so that the error names it.
    numbers = np.where(gpus > 0, in_shares(gpus, shares), 0).tolist()
    sizes = [str(number) if number else text for number, text in zip(numbers, requested, strict=True)]
    columns: dict[str, Column] = {name: name for name in log.table.columns if name not in (*_SIZES, _REQUESTED)}
    return log.loaded(**columns, num_gpus=sizes, **{_REQUESTED: requested})
