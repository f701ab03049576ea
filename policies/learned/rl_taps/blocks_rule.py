"""A rule that follows from the image alone, which the agent can imitate before it learns by itself. It is not in the paper.

How much a job gains by more GPUs depends on its model, which the image does not show. It shows it only while a job runs: the
column of a GPU has the steps that are left at the present speed. So the rule tries. Slot s has GPU s to itself, and the other GPUs
are two blocks: up to the middle of the cluster, and from there on. In each step

1. a job keeps its block if it will be done within the rows of the image, and is faster than on one GPU by a factor of 1.3;
2. a free block goes to a job that has no GPU yet, in order of the slots; if there is none, to the job with the most work left of
   those that run on one GPU;
3. all other jobs run on the GPU of their slot.

The work left of a job is estimated from its rectangle, whose last row counts for a half.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from policies.learned.rl_taps.image_columns import ImageColumns

Images = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_FACTOR = 1.3
"""Least speed of a job that keeps its block, relative to one GPU; chosen on validation sequences."""
_ONE_GPU = 0.9
"""Speed of a job on one GPU, in cells a step (equation 10)."""
_LITTLE = 3.0
"""Cells of work that are not worth a move."""
_NEW = 1e6


def blocks_of(columns: ImageColumns) -> list[slice]:
    """Return the GPUs of the blocks; none where the cluster has no more GPUs than slots."""
    own = min(columns.slots, columns.gpus)
    middle = max(own, columns.gpus // 2)
    found = (slice(own, middle), slice(middle, columns.gpus))
    return [each for each in found if each.stop > each.start]


def actions_of(columns: ImageColumns, images: Images) -> Ints:
    """Return the rule's action for each image of a batch: (B, rows, columns) -> (B, GPUs), slots from 1 on, 0 for none."""
    every = np.arange(len(images))
    owner = images[:, 0, : columns.gpus].astype(np.int64) - 1
    rows = (images[:, :, : columns.gpus] > 0).sum(1)
    work = work_left(columns, images)
    there = work > 0
    has_gpus = (owner[:, :, None] == np.arange(columns.slots)).any(1)
    # GPU s of slot s, as far as there are so many GPUs.
    own = min(columns.slots, columns.gpus)
    on_own = np.zeros_like(there)
    on_own[:, :own] = owner[:, :own] == np.arange(own)
    found = np.zeros((len(images), columns.gpus), dtype=np.int64)
    placed = np.zeros_like(there)
    free: list[tuple[slice, npt.NDArray[np.bool_]]] = []
    for block in blocks_of(columns):
        slot, steps = owner[:, block.start], rows[:, block.start]
        speed = work[every, np.maximum(slot, 0)] / np.maximum(steps, 1)
        stays = (slot >= 0) & (steps < columns.rows) & (speed > _FACTOR * _ONE_GPU)
        found[stays, block] = slot[stays, None] + 1
        placed[stays, slot[stays]] = True
        free.append((block, ~stays))
    for block, is_free in free:
        order = np.where(has_gpus, np.where(on_own & (work > _LITTLE), work, 0.0), _NEW - np.arange(columns.slots))
        order = np.where(there & ~placed, order, 0.0)
        slot = order.argmax(1)
        goes = is_free & (order[every, slot] > 0)
        found[goes, block] = slot[goes, None] + 1
        placed[goes, slot[goes]] = True
    found[:, :own] = np.where((there & ~placed)[:, :own], np.arange(1, own + 1), 0)
    return found


def work_left(columns: ImageColumns, images: Images) -> Floats:
    """Return the cells of work left of the job in each slot (B, slots), as far as the image shows them; 0 for empty slots."""
    slots = images[:, :, columns.first_of_slots : columns.first_of_backlog]
    slots = slots.reshape(len(images), columns.rows, columns.slots, columns.widest)
    tall, wide = slots[:, :, :, 0].sum(1, dtype=np.int64), slots[:, 0].sum(2, dtype=np.int64)
    found: Floats = np.where(tall > 0, (tall - 0.5) * wide, 0.0)
    return found
