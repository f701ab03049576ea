"""CPU seconds and rounds of DL2's trainings, by name.

They are stored in `training_times.json` beside this file, by `python -m simulator.papers.dl2.reproduction.stored --curves`.
Trainings of versions that recorded no CPU time are not in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from simulator.reproducing.learning_curves import TrainingEvents, as_text

_FILE = Path(__file__).with_name("training_times.json")
_PHASES = ("supervised", "training")
CPU_S = "cpu_s"
Times = dict[str, float]
"""CPU seconds (`cpu_s`), and the number of rounds of each phase."""


@cache
def stored_times() -> dict[str, Times]:
    """Return what is stored, by the name of the training."""
    found: dict[str, Times] = json.loads(_FILE.read_text(encoding="utf-8")) if _FILE.is_file() else {}
    return found


def times_of(folder: Path) -> Times:
    """Return the CPU seconds and rounds of the training in that folder; empty if it recorded no CPU time."""
    events = TrainingEvents(folder)
    rounds = {phase: events.values(f"{phase}/{CPU_S}") for phase in _PHASES}
    if not any(rounds.values()):
        return {}
    seconds = sum(sum(each.values()) for each in rounds.values())
    return {CPU_S: round(seconds, 1), **{phase: len(each) for phase, each in rounds.items()}}


def store(times: Mapping[str, Times]) -> None:
    """Store these beside those of other trainings."""
    _FILE.write_text(
        as_text({**stored_times(), **{name: each for name, each in times.items() if each}}), encoding="utf-8"
    )
