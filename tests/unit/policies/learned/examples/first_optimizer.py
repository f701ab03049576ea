"""Imported by a process from which others are forked: the first optimizer imports much of torch, once instead of in each of them.

No test imports this: to collect tests, a process needs no optimizer.
"""

from __future__ import annotations

import torch

torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
