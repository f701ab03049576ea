"""Results of the paper besides JCT: learning curves, times of trainings and decisions, and adjusting.

The first three are stored beside this file and are part of the JSON of `headway-sim reproduce dl2`. What needs a Slurm cluster is
not reproduced there, and the JSON says where it is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simulator.papers.dl2.reproduction.curves import stored_curves
from simulator.papers.dl2.reproduction.training_times import stored_times

INFERENCE = Path(__file__).with_name("inference.json")
"""Results of `python -m simulator.papers.dl2.reproduction.inference --store`, by system."""
_LIVE = "docs/policies/dl2.md, section 'On a cluster'; made by python -m slurm.experiments.elastic on a mini-cluster"
_ELSEWHERE = {
    "time spent on adjusting (the paper: 0.4 %, and 2.54 % by checkpoint)": _LIVE,
    "pause of a resize (the paper: tens of ms, and tens of seconds by checkpoint)": _LIVE,
}


def details() -> dict[str, object]:
    """Return these results as values that JSON has."""
    return {
        "curves": {
            "says": "figures 10, 17 and 19e: gradient steps so far, and average JCT on validation traces, hours",
            "trainings": stored_curves(),
        },
        "training_times": {
            "says": "CPU seconds, and rounds of each phase, of the trainings that recorded them",
            "trainings": stored_times(),
        },
        "inference": {
            "says": "milliseconds of an action and of all actions of a slot of 40 jobs; the paper: below 3 ms for an inference",
            "systems": stored_inference(),
        },
        "elsewhere": _ELSEWHERE,
    }


def stored_inference() -> dict[str, Any]:
    """Return the stored times of decisions by system; empty if there are none."""
    found: dict[str, Any] = json.loads(INFERENCE.read_text(encoding="utf-8")) if INFERENCE.is_file() else {}
    return found
