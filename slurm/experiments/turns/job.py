"""A user's training program: PyTorch DDP over gloo that can resume. job.py NAME STEPS LAYERS WIDTH COMPUTE_S [divided]

The nodes' GPUs are device files without a chip behind them: the time of a step's kernels, COMPUTE_S, is slept. With `divided` it is
the time on one GPU, and is divided by the job's GPUs, as if the batch of all workers together were always the same. Rank 0 adds a
line to NAME.runs when a run begins (first step, GPUs, time) and when the training has ended ("done").
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import headway_job
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train to the end, or until the job is stopped."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    if world_size > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
    train(rank, world_size)
    record(rank, sys.argv[1], "done")
    if world_size > 1:
        # After the model is freed: DDP would otherwise free the last group, and torch 2.13 then waits, with Python's lock, for a
        # thread of gloo that may need that lock
        dist.destroy_process_group()


def train(rank: int, world_size: int) -> None:
    """Make the steps that are left."""
    name, steps, layers, width, compute_s = sys.argv[1], *map(int, sys.argv[2:5]), float(sys.argv[5])
    gpus = world_size * len(os.environ["SLURM_STEP_GPUS"].split(","))
    if sys.argv[6:] == ["divided"]:
        compute_s /= gpus
    model: torch.nn.Module = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)])
    if world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(2, width)
    run = headway_job.checkpoint(model=model, optimizer=optimizer)
    record(rank, name, f"{run.start} {gpus} {time.time()}")
    for _ in run.steps(steps):
        optimizer.zero_grad()
        time.sleep(compute_s)
        torch.autograd.backward(model(batch).square().mean())
        optimizer.step()
    run.close()


def record(rank: int, name: str, line: str) -> None:
    """Write a line of rank 0 into the file that the experiment reads."""
    if rank == 0:
        with Path(f"{name}.runs").open("a") as runs:
            runs.write(f"{line}\n")


if __name__ == "__main__":
    main()
