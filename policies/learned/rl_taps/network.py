"""RL-TAPS' network (section 4.5.1, figure 1): one hidden layer, which all softmax heads share, one for each GPU.

The paper gives neither the activation nor how the colours of jobs become numbers. Here the activation is ReLU. With `SCALED` a
cell of a GPU is the slot's number over the number of slots, as in the paper's image with cells between 0 and 1. With `ONE_HOT` it
is 1 where the GPU is in use, and for each GPU there is one more input for each slot, 1 if the GPU belongs to its job: the
same information, where no slot is between two others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.learned.algorithms.networks import perceptron
from policies.learned.rl_taps.image_columns import ImageColumns
from policies.learned.rl_taps.recipe import ONE_HOT, SCALED


class RlTapsNetwork(nn.Module):
    """An `algorithms.networks.ActorCritic` without a critic: its values are 0. Images (B, rows, columns) -> logits (B, GPUs,
    slots + 1)."""

    def __init__(self, columns: ImageColumns, hidden: int, colours: str = SCALED) -> None:
        """`hidden` is the width of the hidden layer; the paper has 1.5 units for each output, 528."""
        super().__init__()
        rows, width = columns.shape
        self.columns = columns
        """The form of the images."""
        self._is_one_hot = colours == ONE_HOT
        inputs = rows * width + (columns.gpus * columns.slots if self._is_one_hot else 0)
        self.body = perceptron((inputs, hidden, columns.gpus * (columns.slots + 1)), nn.ReLU, last_gain=0.01)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and values."""
        return self.logits(images), torch.zeros(len(images))

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits alone."""
        found: Tensor = self.body(self._inputs(images)).unflatten(1, self.columns.actions)
        return found

    def _inputs(self, images: Tensor) -> Tensor:
        gpus = self.columns.gpus
        cells = images.to(torch.float32, copy=True)
        if not self._is_one_hot:
            cells[:, :, :gpus] /= self.columns.slots
            return cells.flatten(1)
        cells[:, :, :gpus].clamp_(max=1.0)
        slots = torch.arange(1, self.columns.slots + 1, dtype=torch.uint8)
        owners = (images[:, 0, :gpus, None] == slots).to(torch.float32)
        return torch.cat([cells.flatten(1), owners.flatten(1)], dim=1)
