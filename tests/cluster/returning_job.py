"""A user's training program that can come back: PyTorch DDP over gloo, with headway_job's checkpoints.

returning_job NAME STEPS PAUSE_S: rank 0 writes the number and the loss of every step to NAME.losses, and where each run began
to NAME.began.
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
    name, steps, pause_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    run = headway_job.checkpoint(model=model, optimizer=optimizer)
    if rank == 0:
        with Path(f"{name}.began").open("a") as began:
            began.write(f"{run.start}\n")
    with Path(f"{name}.losses" if rank == 0 else "/dev/null").open("a", buffering=1) as losses:
        for step in run.steps(steps):
            time.sleep(pause_s)  # what a GPU would take
            optimizer.zero_grad()
            loss = (model(torch.randn(8, 16)) - 1).square().mean()
            loss.backward()
            optimizer.step()
            losses.write(f"{step} {loss.item():.9f}\n")
    run.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
