"""Figures of trainings: read from their folders, and stored beside an experiment as a JSON file with one line for each training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

FILE = "curves.json"


class TrainingEvents:
    """The figures for TensorBoard that a training wrote."""

    def __init__(self, folder: Path) -> None:
        """Read those of the training in that folder."""
        from tensorboard.backend.event_processing import event_accumulator  # type: ignore[import-untyped]

        self._events = event_accumulator.EventAccumulator(str(folder / "events"))
        self._events.Reload()

    def values(self, tag: str) -> dict[int, float]:
        """Return the values of a figure by the number of rounds before; empty if there are none."""
        known = self._events.Tags()["scalars"]
        return {each.step: each.value for each in self._events.Scalars(tag)} if tag in known else {}


def stored(package: str) -> dict[str, Any]:
    """Return the curves that are stored in that package, by the name of the training; empty where there are none."""
    file = files(package) / FILE
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def as_text(curves: Mapping[str, Any]) -> str:
    """Return the file's text: one line for each training."""
    return "{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(curve)}" for name, curve in curves.items()) + "\n}\n"
