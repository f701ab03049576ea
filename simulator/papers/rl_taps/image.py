"""Paints the images of many clusters at once (section 4.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.rl_taps.image_columns import ImageColumns

Image = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Painter:
    """Paints images of one form. Colours are whole numbers from 1; 0 is empty."""

    def __init__(self, columns: ImageColumns) -> None:
        self.columns = columns
        self._rows = np.arange(columns.rows)[:, None]
        self._across = np.arange(columns.widest)
        self._cells = np.arange(columns.of_backlog * columns.rows).reshape(columns.rows, -1)

    def paint(
        self, owner: npt.NDArray[np.integer], left: Floats, slot_rows: Floats, slot_gpus: Ints, backlog: Ints
    ) -> Image:
        """Return images (B, rows, columns), as new arrays.

        `owner` (B, GPUs): colour of each GPU's job less one, -1 for none; `left` (B, GPUs): steps until that job ends;
        `slot_rows` and `slot_gpus` (B, slots): steps and GPUs of the jobs in the slots, 0 for none; `backlog` (B): jobs in it.
        """
        columns = self.columns
        image = np.zeros((len(owner), *columns.shape), dtype=np.uint8)
        image[:, :, : columns.gpus] = (_cells(left)[:, None, :] > self._rows) * (owner + 1).astype(np.uint8)[:, None, :]
        tall = _cells(slot_rows)[:, None, :] > self._rows
        wide = slot_gpus[:, :, None] > self._across
        slots = image[:, :, columns.first_of_slots : columns.first_of_backlog]
        slots[:] = (tall[:, :, :, None] & wide[:, None, :, :]).reshape(slots.shape)
        image[:, :, columns.first_of_backlog :] = self._cells < np.minimum(backlog, columns.backlog)[:, None, None]
        return image


def _cells(steps: Floats) -> Floats:
    """Return the number of rows that these steps take: whole ones, with room for rounding errors."""
    return np.ceil(steps - 1e-9)
