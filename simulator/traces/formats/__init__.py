"""Published logs, and a cluster's own, as traces: one module for each format, with a function `load`.
Imports `errors`, `traces/files`, `traces/numbers`, `traces/read`, `traces/table`, `traces/trace` and `traces/write`; of other
packages `policies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from simulator.traces.formats.log import Loaded, Options, joined

FORMATS = (
    "philly",
    "helios",
    "acme",
    "pai",
    "openb",
    "itp",
    "gavel",
    "pollux",
    "tiresias",
    "swf",
    "sacct",
    "fractional",
)
IN_SHARES = ("pai", "openb", "fractional")
"""Formats whose jobs may request parts of a GPU."""


def load_log(form: str, paths: Sequence[Path], options: Options | None = None) -> Loaded:
    """Return the log in these files, in one of `FORMATS`, as a trace whose first submission is at 0. Raises TraceError."""
    if form not in FORMATS:
        raise ValueError(f"no format {form!r}; there are {', '.join(FORMATS)}")
    module = import_module(f"simulator.traces.formats.{form}")
    loaded: Loaded = module.load(paths, options or Options())
    return Loaded(loaded.trace.from_zero(), loaded.skipped)


__all__ = ["FORMATS", "IN_SHARES", "Loaded", "Options", "joined", "load_log"]
