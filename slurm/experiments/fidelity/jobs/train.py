"""One rank of a training run: PyTorch DDP over gloo, with real gradients on a real network.

The nodes' GPUs are device files without a chip behind them, and all nodes share a few cores. So the time of a GPU's kernels
is slept, in the forward pass and layer by layer in the backward pass, where DDP sends the gradients of the layers before:
communication hides behind computing as it does on GPUs. A step's kernels take from 0.8 to 1.2 times their mean, equally on all
ranks (a batch is as long for all of them), so that jobs which share a link do not fall into step with each other; over any
dozen of steps the mean is kept.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.nn.parallel import DistributedDataParallel

_RATE = 0.01
_SPREAD = 0.2
_GOLDEN = 0.6180339887498949
"""Its multiples, whole parts taken off, are spread evenly however many there are (Kuipers and Niederreiter 1974)."""
_PATIENCE = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings of one run."""

    layers: int
    """Number of layers; each is reduced separately, as one of DDP's buckets."""
    width: int
    """Width of a layer: width x width weights of 4 bytes."""
    forward_s: float
    """Kernels of one step's forward pass, mean."""
    backward_s: float
    """Kernels of one step's backward pass, mean."""
    steps: int
    seed: int
    """Seed of weights, batches and kernel times."""
    report: str
    """File that rank 0 writes at the end."""


@dataclass(frozen=True, slots=True)
class Place:
    """Identity of this rank."""

    rank: int
    world_size: int
    address: str
    port: int


class _Kernels(torch.autograd.Function):
    """Sleeps in the forward and in the backward pass, and changes no value."""

    @staticmethod
    def forward(ctx: Any, batch: torch.Tensor, forward_s: float, backward_s: float) -> torch.Tensor:
        """Sleep, and return the value unchanged."""
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return batch.view_as(batch)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Sleep, and return the value unchanged."""
        time.sleep(ctx.backward_s)
        return gradients[0], None, None


def _kernels(batch: torch.Tensor, forward_s: float, backward_s: float) -> torch.Tensor:
    """Return the batch after one sleep; its gradients follow after another."""
    passed: torch.Tensor = _Kernels.apply(batch, forward_s, backward_s)  # type: ignore[no-untyped-call]
    return passed


class _Model(torch.nn.Module):
    """Layers with sleeping kernels."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        layers = [torch.nn.Linear(plan.width, plan.width, bias=False) for _ in range(plan.layers)]
        self.layers = torch.nn.ModuleList(layers)
        self._forward_s = plan.forward_s / plan.layers
        self._backward_s = plan.backward_s / plan.layers
        self.pace = 1.0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the output of all layers."""
        for layer in self.layers:
            # The kernels' backward runs before the layer's: its gradients are there when its kernels are done.
            batch = _kernels(layer(batch), self._forward_s * self.pace, self._backward_s * self.pace)
        return batch


def train(plan: Plan, place: Place) -> None:
    """Train, and let rank 0 report its times."""
    begun_s = time.time()
    torch.set_num_threads(1)
    store = TCPStore(place.address, place.port, place.world_size, place.rank == 0, timeout=_PATIENCE)
    dist.init_process_group("gloo", store=store, rank=place.rank, world_size=place.world_size, timeout=_PATIENCE)
    step = _stepper(plan, place.rank)
    dist.barrier()
    times_s, forward_s = [time.time()], []
    for _ in range(plan.steps):
        forward_s.append(step())
        times_s.append(time.time())
    dist.barrier()
    if place.rank == 0:
        report = {"begun_s": begun_s, "times_s": times_s, "forward_s": forward_s, "ended_s": time.time()}
        Path(plan.report).write_text(json.dumps(report))


def _stepper(plan: Plan, rank: int) -> Callable[[], float]:
    """Return a function that makes one step and returns the time of its forward pass, seconds."""
    torch.manual_seed(plan.seed)
    model = _Model(plan)
    megabytes = plan.width * plan.width * 4 / 2**20
    replica = DistributedDataParallel(model, bucket_cap_mb=megabytes, gradient_as_bucket_view=True)
    taken = 0
    offset = random.Random(plan.seed).random()  # noqa: S311 - not a secret
    torch.manual_seed(plan.seed + 1 + rank)
    batch, target = torch.randn(2, plan.width), torch.randn(2, plan.width)

    def step() -> float:
        nonlocal taken
        taken += 1
        model.pace = 1 + _SPREAD * (2 * ((offset + taken * _GOLDEN) % 1.0) - 1)
        begun_s = time.perf_counter()
        loss = torch.nn.functional.mse_loss(replica(batch), target)
        forward_s = time.perf_counter() - begun_s
        torch.autograd.backward(loss)
        with torch.no_grad():
            for weights in model.parameters():
                if weights.grad is not None:
                    weights.sub_(weights.grad, alpha=_RATE)
                    weights.grad.zero_()
        return forward_s

    return step
