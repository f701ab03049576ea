"""A preemptible training program of a user that loads the network: PyTorch DDP over gloo, with headway_job's checkpoints.

contending_job NAME STEPS MEGABYTES: gradients that every step sends. Rank 0 adds to NAME.ended when each step ended, seconds since
the Unix epoch, and to NAME.began the first step of each run.
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

WIDTH = 512


def main() -> None:
    name, steps, megabytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    train(rank, name, steps, megabytes)
    dist.destroy_process_group()  # after the model is freed: see returning_job


def train(rank: int, name: str, steps: int, megabytes: int) -> None:
    """Make the steps that are left."""
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(megabytes)]  # of a megabyte each
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(2, WIDTH)
    run = headway_job.checkpoint(model=model, optimizer=optimizer)
    if rank == 0:
        with Path(f"{name}.began").open("a") as began:
            began.write(f"{run.start}\n")
    with Path(f"{name}.ended" if rank == 0 else "/dev/null").open("a", buffering=1) as ended:
        for _ in run.steps(steps):
            optimizer.zero_grad()
            torch.autograd.backward(model(batch).square().mean())
            optimizer.step()
            ended.write(f"{time.time():.6f}\n")
    run.close()


if __name__ == "__main__":
    main()
