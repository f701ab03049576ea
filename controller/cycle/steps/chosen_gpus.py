"""The text of `headway why` about the GPUs that a policy has chosen, and whether Slurm was told."""

from __future__ import annotations

from collections.abc import Sequence

from controller.slurm.client import Pin
from policies.state.gpu_layout import gpus_text

_MOST_NODES = 3


def chosen_text(pin: Pin, masks: Sequence[int]) -> str:
    """Return a sentence about the GPUs that were chosen on the nodes of the pin; empty where none were.

    A pin without GPUs is one that Slurm cannot be told with them.
    """
    chosen = [(node, mask) for node, mask in zip(pin.nodes, masks, strict=False) if mask]
    if not chosen:
        return ""
    parts = [f"{'GPUs' if mask.bit_count() > 1 else 'GPU'} {gpus_text(mask)} of {node}" for node, mask in chosen]
    text = ", ".join(parts[:_MOST_NODES]) + (", ..." if len(parts) > _MOST_NODES else "")
    if any(pin.gpu_masks):
        return f"Slurm was told to give it {text}"
    were = "was" if len(chosen) == 1 and chosen[0][1].bit_count() == 1 else "were"
    return f"{text} {were} chosen; Slurm cannot be told which"
