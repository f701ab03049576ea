"""The checkpoint of a training: its content, its file, and the times at which it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from policies.errors import TrainingError
from policies.learned.training.run.snapshot import from_bytes, to_bytes
from policies.learned.weights import weights
from policies.learned.weights.files import write_whole

POINT_EVERY_S = 30.0


class Stateful(Protocol):
    """Objects with a state: networks, optimizers, schedules, replay memories."""

    def state_dict(self) -> Any:
        """Return nested dicts, lists and tuples of arrays, tensors, numbers and texts."""

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Continue from a state that `state_dict` returned."""


class NamedArrays(dict[str, weights.Array]):
    """Arrays by name with a state, for recipes that learn without torch."""

    def state_dict(self) -> dict[str, weights.Array]:
        """Return copies."""
        return {name: array.copy() for name, array in self.items()}

    def load_state_dict(self, state_dict: Mapping[str, weights.Array], /) -> None:
        """Continue from a state that `state_dict` returned."""
        self.clear()
        self.update(state_dict)


class Parts:
    """Named objects whose states are carried from round to round. Bound: the parts of the recipe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: dict[str, Stateful] = {}

    def keep(self, parts: Mapping[str, Stateful]) -> None:
        """Add these. Raises ValueError for a name that is taken."""
        for name, part in parts.items():
            if name in self._parts:
                raise ValueError(f"{name} is kept already; give the other part another name")
            self._parts[name] = part

    def state_dict(self) -> dict[str, Any]:
        """Return the states by name."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, states: Mapping[str, Any]) -> None:
        """Continue from states that `state_dict` returned. Raises TrainingError where the names are others."""
        if states.keys() != self._parts.keys():
            raise TrainingError(
                f"{self._folder}: the checkpoint has {', '.join(states)}, and this recipe needs {', '.join(self._parts)}; "
                "use the version of Headway that began it, or begin again in another folder"
            )
        for name, part in self._parts.items():
            part.load_state_dict(states[name])


class Checkpoint:
    """The file `state/point`. Invariant: it is a whole checkpoint of this training, or not there."""

    def __init__(self, folder: Path, every_s: float, clock: Callable[[], float]) -> None:
        """Checkpoints are at most `every_s` apart where rounds are shorter than that."""
        self._path = folder / "state" / "point"
        self._every_s = every_s
        self._clock = clock
        self._written_at = 0.0
        self._longest_s = 0.0

    def begin(self) -> None:
        """Start the clock."""
        self._written_at = self._clock()

    def read(self) -> dict[str, Any] | None:
        """Return the checkpoint that is there; None where there is none. Raises TrainingError for a damaged one."""
        if not self._path.exists():
            return None
        found: dict[str, Any] = from_bytes(self._path.read_bytes(), str(self._path))
        return found

    def note_round(self, round_s: float) -> str | None:
        """Record how long a round took; return a warning for the first one that is longer than the time between checkpoints."""
        is_first = round_s > self._every_s >= self._longest_s
        self._longest_s = max(self._longest_s, round_s)
        if is_first:
            return f"a round took {round_s:.0f} s: a killed training loses up to that much work; make rounds shorter"
        return None

    @property
    def is_due(self) -> bool:
        """True if the next round might end too late for the next checkpoint."""
        return self._clock() - self._written_at + self._longest_s > self._every_s

    def write(self, content: Mapping[str, Any]) -> None:
        """Replace the file."""
        self._path.parent.mkdir(exist_ok=True)
        write_whole(self._path, to_bytes(content))
        self._written_at = self._clock()
