"""Ranges that were given, and what became of them: in memory, and as the content of a file. Pure.

Of each job one range is followed in each class of horizon, the first one: a job that waits for days is so also a test of the ranges
for the last hour.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.forecast.past_runs import StoredKey
from simulator.forecast.calibration import Track

MOST_OPEN = 5_000
MOST_ENDED = 2_000
"""Maximum number of ranges that are followed, and of those whose end is kept, the last ones."""
OLDEST_S = 30 * 86400.0
"""Age from which on a range is no longer followed, seconds."""
_VERSION = 1

Followed = tuple[str, int, int]
"""Id and submit time of a job, and the class of horizon of its range."""


@dataclass
class Tracks:
    """Open and ended ranges. Invariant: at most MOST_OPEN and MOST_ENDED, each in the order in which it was made or ended."""

    open: dict[Followed, Track] = field(default_factory=dict)
    """Bound: `MOST_OPEN`."""
    ended: list[Track] = field(default_factory=list)
    """Bound: `MOST_ENDED`."""
    held: int = 0
    missed: int = 0
    """Numbers of ranges whose jobs started within and outside them, in all: also of those that are no longer kept."""

    def settle(self, started: Mapping[StoredKey, float], waiting: Callable[[StoredKey], bool], now_s: float) -> None:
        """End the ranges of jobs that have started, by their start; those of jobs that are gone otherwise are dropped."""
        for followed, track in list(self.open.items()):
            key = followed[:2]
            start_s = started.get(key)
            if start_s is not None and start_s >= track.made_s:
                wait_s = start_s - track.made_s
                self.ended.append(replace(track, wait_s=wait_s))
                has_held = track.shown_s[0] <= wait_s <= track.shown_s[-1]
                self.held, self.missed = self.held + has_held, self.missed + (not has_held)
            elif start_s is None and waiting(key) and now_s - track.made_s <= OLDEST_S:
                continue
            del self.open[followed]
        del self.ended[:-MOST_ENDED]

    def follow(self, followed: Followed, track: Track) -> None:
        """Follow that range, if none of the job is followed in that class and there is room."""
        if followed not in self.open and len(self.open) < MOST_OPEN:
            self.open[followed] = track

    def all(self) -> list[Track]:
        """Return all ranges in the order in which they were made."""
        return sorted([*self.ended, *self.open.values()], key=lambda track: track.made_s)

    def text(self) -> str:
        """Return the content of the file."""
        return json.dumps(
            {
                "version": _VERSION,
                "open": [[*followed, *_row(track)] for followed, track in self.open.items()],
                "ended": [[*_row(track), track.wait_s] for track in self.ended],
                "held": self.held,
                "missed": self.missed,
            }
        )


def tracks_of(text: str) -> Tracks:
    """Return the content of the file; without any range where it is not such a file: ranges begin anew then."""
    try:
        read = json.loads(text)
        if read["version"] != _VERSION:
            return Tracks()
        open_ = {
            (str(job_id), int(submit_s), int(horizon)): _track(row, None)
            for job_id, submit_s, horizon, *row in read["open"]
        }
        ended = [_track(row, _number(wait_s)) for *row, wait_s in read["ended"]]
        # Files of earlier versions have no numbers.
        held, missed = (int(_number(read.get(name, 0))) for name in ("held", "missed"))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return Tracks()
    return Tracks(dict(list(open_.items())[:MOST_OPEN]), ended[-MOST_ENDED:], held, missed)


def _row(track: Track) -> list[float]:
    return [round(number, 1) for number in (track.made_s, *track.raw_s, *track.shown_s)]


def _track(row: list[Any], wait_s: float | None) -> Track:
    made_s, *waits = map(_number, row)
    low, middle, high, shown_low, shown_middle, shown_high = waits
    return Track(made_s, (low, middle, high), (shown_low, shown_middle, shown_high), wait_s)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"not a time: {value!r}")
    return number
