"""RL-TAPS' network (section 4.5.1, figure 1): one hidden layer, which all softmax heads share, one for each GPU.

The paper gives neither the activation nor the scale of the inputs. Here the activation is ReLU, and cells are between 0 and 1: a
slot's number is divided by the number of slots.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.learned.algorithms.networks import perceptron
from policies.learned.rl_taps.image_columns import ImageColumns


class RlTapsNetwork(nn.Module):
    """An `algorithms.networks.ActorCritic` without a critic: its values are 0. Images (B, rows, columns) -> logits (B, GPUs,
    slots + 1)."""

    def __init__(self, columns: ImageColumns, hidden: int) -> None:
        """`hidden` is the width of the hidden layer; the paper has 1.5 units for each output, 528."""
        super().__init__()
        rows, width = columns.shape
        self._columns = columns
        self.body = perceptron((rows * width, hidden, columns.gpus * (columns.slots + 1)), nn.ReLU, last_gain=0.01)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and values."""
        return self.logits(images), torch.zeros(len(images))

    def logits(self, images: Tensor) -> Tensor:
        """Return the logits alone."""
        cells = images.to(torch.float32, copy=True)
        cells[:, :, : self._columns.gpus] /= self._columns.slots
        found: Tensor = self.body(cells.flatten(1)).unflatten(1, self._columns.actions)
        return found
