"""A user's training program: PyTorch DDP over gloo, one rank per Slurm task. Knows nothing of Headway.

ddp_job NAME MEGABYTES PAUSE_S: gradients that every step sends, and for how long it computes; until it is cancelled. Each
rank writes when each step ended, seconds since the Unix epoch, to a file of its own: NAME.steps, NAME.steps.1, ...
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import eager_torch  # noqa: F401
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH = 512


def main() -> None:
    name, megabytes, pause_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(megabytes)]  # of a megabyte each
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(2, WIDTH)
    with Path(f"{name}.steps.{rank}" if rank else f"{name}.steps").open("w", buffering=1) as ended:
        while True:
            optimizer.zero_grad()
            time.sleep(pause_s)  # what a GPU would take
            torch.autograd.backward(model(batch).square().mean())
            optimizer.step()
            ended.write(f"{time.time():.6f}\n")


if __name__ == "__main__":
    main()
