"""A user's training program that can resume: PyTorch DDP over gloo, with headway_job's checkpoints.

returning_job NAME STEPS PAUSE_S: every step takes PAUSE_S, until there is a file NAME.hurry. Rank 0 writes the number and the
loss of every step to NAME.losses, and the first step of each run to NAME.began. Where the environment's BEGUN_S says when python
was started, each rank adds a line to NAME.starts.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from pathlib import Path

if "BEGUN_S" in os.environ:
    import torch._dynamo  # DDP's first use would import it: as long again as torch, which is to count as import
else:
    import eager_torch  # noqa: F401
import headway_job
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

IMPORTED_S = time.time()
STUCK_S = 150.0
"""Nearly every job of the tests has ended by then, unless it hangs: then its log says where, before the test gives up."""


def main() -> None:
    faulthandler.dump_traceback_later(STUCK_S)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world_size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    train(rank, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    # The model is freed before the groups: DDP would otherwise free the last one, and torch 2.13 then waits, with Python's lock,
    # for a thread of gloo that may need that lock
    dist.destroy_process_group()


def train(rank: int, name: str, steps: int, pause_s: float) -> None:
    """Make the steps that are left."""
    times = {"imported_s": IMPORTED_S, "joined_s": time.time()}
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    times["made_s"] = time.time()
    run = headway_job.checkpoint(model=model, optimizer=optimizer, name=name)
    times["restored_s"] = time.time()
    if rank == 0:
        with Path(f"{name}.began").open("a") as began:
            began.write(f"{run.start}\n")
    hurry = Path(f"{name}.hurry")
    with Path(f"{name}.losses" if rank == 0 else "/dev/null").open("a", buffering=1) as losses:
        for step in run.steps(steps):
            if not hurry.exists():
                time.sleep(pause_s)  # in place of the time of a GPU
            optimizer.zero_grad()
            loss = (model(torch.randn(8, 16)) - 1).square().mean()
            loss.backward()
            optimizer.step()
            losses.write(f"{step} {loss.item():.9f}\n")
            if step == run.start and "BEGUN_S" in os.environ:
                write_start(name, rank, step, times)
    run.close()


def write_start(name: str, rank: int, step: int, times: dict[str, float]) -> None:
    """Append with a single write, so that lines of several ranks cannot mix."""
    line = {"rank": rank, "first": step, "begun_s": float(os.environ["BEGUN_S"]), **times, "stepped_s": time.time()}
    with Path(f"{name}.starts").open("a") as starts:
        starts.write(f"{json.dumps(line)}\n")


if __name__ == "__main__":
    main()
