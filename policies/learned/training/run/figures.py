"""Figures of a training, for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Figures:
    """Figures for TensorBoard, in the folder `events`. Imports torch when the first figure is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def add(self, name: str, figure: float, rounds_done: int) -> None:
        """Write one figure. Figures of rounds that a killed training does again are not shown twice."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=rounds_done)
        self._writer.add_scalar(name, figure, rounds_done)

    def flush(self) -> None:
        """Write what is still in memory."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
