"""The image of `headway/RlTaps-v0` as the agent knows it: which columns show what (section 4.3, figure 1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageColumns:
    """The image has `rows` rows of time, and three parts side by side: a column for each GPU, `widest` columns for each job slot,
    and the backlog, one cell for each job. Cells are whole numbers from 0 to `brightest`."""

    gpus: int
    slots: int
    widest: int
    """Most GPUs that a job can request."""
    rows: int
    backlog: int
    """Most jobs of the backlog that are shown."""

    @property
    def of_backlog(self) -> int:
        """Number of columns of the backlog."""
        return -(-self.backlog // self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of an image."""
        return self.rows, self.gpus + self.slots * self.widest + self.of_backlog

    @property
    def first_of_slots(self) -> int:
        """First column of the first slot."""
        return self.gpus

    @property
    def first_of_backlog(self) -> int:
        """First column of the backlog."""
        return self.gpus + self.slots * self.widest

    @property
    def actions(self) -> tuple[int, int]:
        """An action has a part for each GPU, and each part is one of 0 (no job) to `slots`."""
        return self.gpus, self.slots + 1


PAPER = ImageColumns(gpus=32, slots=10, widest=12, rows=10, backlog=60)
"""Section 5.1."""
