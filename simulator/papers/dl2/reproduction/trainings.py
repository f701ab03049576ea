"""Trainings of DL2's agent whose runs are stored: each name, and what it changes in the recipe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Training:
    """A training of `headway-policy train dl2`."""

    settings: tuple[str, ...]
    """Fields of the recipe that differ from their defaults, as for `--set`."""
    says: str
    """The purpose of the training, and the place in the paper."""

    def command(self, name: str) -> str:
        """Return the command that makes its weights."""
        changes = "".join(f" --set {each}" for each in self.settings)
        return f"headway-policy train dl2 --seed 0 --out trained/{name}{changes}"


OURS = "dl2"
OFFLINE, SUPERVISED, UNEXPLORED = "offline-rl", "supervised-alone", "without-exploration"
TRAININGS = {
    OURS: Training((), "the supervised phase, then reinforcement learning; its weights come with Headway"),
    OFFLINE: Training(("speeds=analytical",), "OfflineRL: the same, trained at the speeds of Optimus' fit (6.2)"),
    SUPERVISED: Training(("rounds=1",), "the supervised phase alone (figure 10)"),
    UNEXPLORED: Training(("epsilon=0",), "no job-aware exploration (table 2)"),
}
