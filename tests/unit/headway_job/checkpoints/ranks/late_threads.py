"""A rank in its own Python interpreter, which trains and ends: `python -m ... RANK MEETING FOLDER HOW`."""

import os
import signal
import sys

import eager_torch  # noqa: F401
import torch
import torch.distributed as dist
from headway_job import checkpoint

from tests.unit.headway_job.checkpoints.training import Training


def main(rank: int, meeting: str, folder: str, how: str) -> None:
    """Make eight steps, of which the fourth is saved. Then close the run and the groups, or only leave the loop, or fail.

    "forks" closes the run in a child, too.
    """
    signal.alarm(50)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    training = Training(rank, 1)
    run = checkpoint(folder, every_steps=4, **training.parts())
    for step in run.steps(8 if how in ("closes", "forks") else 1_000):
        training.step()
        if step == 2 and how == "forks" and not (child := os.fork()):
            signal.alarm(30)
            run.step()
            run.close()
            os._exit(0)
        if step == 7 and how in ("breaks", "fails"):
            break
    if how == "fails":
        raise ValueError("a mistake of the script's")
    if how == "forks":
        assert os.waitpid(child, os.WNOHANG) == (child, 0), "it has not waited for the ranks"
    if how in ("closes", "forks"):
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])
