"""A small distributed training program as users write it: PyTorch DDP over gloo, one process per Slurm task.

It knows nothing about the scheduler. The GPUs of the demonstration are only device files, so the program sleeps for the time that a
GPU would compute. The gradients are real and cross the network, for which such jobs compete.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LAYERS = {"small": 2, "medium": 4, "large": 4}
"""Layers of the model by size; each has a megabyte of gradients."""
GPU_TIME_S = {"small": 0.06, "medium": 0.04, "large": 0.08}
"""Seconds that a GPU would compute per step."""
WIDTH = 512
BATCH = 2


def training_step(size: str) -> Callable[[], float]:
    """Return a function that makes one step and returns the loss."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS[size])]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(1 + dist.get_rank())
    inputs, targets = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        time.sleep(GPU_TIME_S[size])
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.item()

    return step


def main() -> None:
    """Train; rank 0 prints a report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=sorted(LAYERS), required=True)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()

    torch.set_num_threads(1)
    rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    step = training_step(args.size)
    first_loss = loss = step()
    begun = time.monotonic()
    for _ in range(args.steps - 1):
        loss = step()
    step_ms = 1000 * (time.monotonic() - begun) / max(args.steps - 1, 1)
    dist.barrier()
    if rank == 0:
        report = {"world_size": world_size, "steps": args.steps, "step_ms": round(step_ms, 1)}
        report |= {"first_loss": round(first_loss, 4), "last_loss": round(loss, 4)}
        sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    os._exit(0)  # saves a third of a second in which Python frees its modules


if __name__ == "__main__":
    main()
