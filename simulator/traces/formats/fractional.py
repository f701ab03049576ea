"""A trace in the common form (`simulator.traces.read`) in which jobs may request parts of a GPU, such as 0.5.

Parts are rounded up, or counted in shares (`simulator.traces.formats.parts`); the requested number is kept as requested_gpus.
Dropped: jobs without GPUs. `min_gpus` and `max_gpus` are left out: they count whole GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulator.traces.formats.log import NO_GPUS, Column, Loaded, Log, Options, joined
from simulator.traces.formats.parts import in_shares
from simulator.traces.read import OPTIONAL, REQUIRED
from simulator.traces.table import read_table

_SIZES = ("num_gpus", "min_gpus", "max_gpus")


def load(paths: Sequence[Path], options: Options) -> Loaded:
    """Load the jobs of these traces."""
    return joined([_load(path, options.gpu_shares) for path in paths], paths)


def _load(path: Path, shares: int) -> Loaded:
    log = Log(read_table(path, REQUIRED))
    gpus = log.numbers("num_gpus")
    log.drop(gpus == 0, NO_GPUS)
    requested = list(log.texts("num_gpus"))
    # A text that is no number of GPUs stays as it is, so that the error names it.
    numbers = np.where(gpus > 0, in_shares(gpus, shares), 0).tolist()
    sizes = [str(number) if number else text for number, text in zip(numbers, requested, strict=True)]
    columns: dict[str, Column] = {
        name: name for name in (*REQUIRED, *OPTIONAL) if name in log.table.columns and name not in _SIZES
    }
    return log.loaded(**columns, num_gpus=sizes, requested_gpus=requested)
