"""The forecasting process: reads one request, writes one answer, and ends. `python -m controller.forecast.child` runs it.

It yields to everything else on the machine, and the kernel ends it when it takes too much time or memory.
"""

from __future__ import annotations

import gc
import os
import resource
import sqlite3
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from controller.forecast.past_runs import read_past_runs
from controller.forecast.request import decode_request
from controller.forecast.tracks import Tracks, tracks_of
from controller.forecast.work import answer

_NICENESS = 15
"""Nice value at least; where the controller has one of its own, it does not add up to 19, with which a busy machine stops it."""
_LEAST_CPU_S = 0.1
"""CPU time for samples, however long it took to get there, seconds."""
_CPU_S = 20
_MEMORY_BYTES = 2 << 30
MOST_TRACK_BYTES = 16 << 20


def main() -> int:
    """Forecast once."""
    _limit_itself()
    gc.disable()  # the samples have no cycles, and a search for some among all jobs takes longer than several samples
    request = decode_request(sys.stdin.buffer.read())
    try:
        runs = read_past_runs(Path(request.journal))
    except sqlite3.Error:
        runs = []  # without past runs, time limits and the runs of present jobs remain
    path = Path(request.tracks)
    tracks = _read_tracks(path)
    left_s = max(request.cpu_s - time.process_time(), _LEAST_CPU_S)
    found = answer(replace(request, cpu_s=left_s), runs, tracks)
    with suppress(OSError):  # a full disk costs the memory of past errors, not the estimate
        _write_tracks(path, tracks)
    sys.stdout.buffer.write(replace(found, held=tracks.held, missed=tracks.missed).encode())
    return 0


def _limit_itself() -> None:
    os.nice(max(_NICENESS - os.nice(0), 0))
    for limit, most in ((resource.RLIMIT_CPU, _CPU_S), (resource.RLIMIT_AS, _MEMORY_BYTES)):
        _, hard = resource.getrlimit(limit)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (least, least))


def _read_tracks(path: Path) -> Tracks:
    try:
        if path.stat().st_size > MOST_TRACK_BYTES:
            return Tracks()
        return tracks_of(path.read_text())
    except (OSError, UnicodeDecodeError):
        return Tracks()


def _write_tracks(path: Path, tracks: Tracks) -> None:
    """Replace the file as a whole."""
    temporary = path.with_suffix(".new")
    temporary.write_text(tracks.text())
    temporary.replace(path)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # the kernel frees the memory at once; Python would visit every job of every sample
