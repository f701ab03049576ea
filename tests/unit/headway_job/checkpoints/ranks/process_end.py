"""A rank in its own Python interpreter, to test the end of a process: `python -m ... RANK MEETING FOLDER HOW`."""

import logging
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from headway_job import checkpoint
from headway_job.checkpoints import program_end

from tests.unit.headway_job.checkpoints.training import Training, saved_at


def main(rank: int, meeting: str, folder: Path, how: str) -> None:
    """Stop rank 1, which looks to the other like a lost node; then end rank 0, with or without an exception."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    signal.alarm(50)
    torch.set_num_threads(1)
    program_end.OTHERS_WAIT_S = program_end.EXIT_WAIT_S = 0.3
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    training = Training(rank, 1)
    run = checkpoint(str(folder), **training.parts())
    saved_at(run, training, 2)
    run._every_steps = 0
    if rank:
        (folder.parent / "stops").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    while not (folder.parent / "stops").exists():
        time.sleep(0.01)
    time.sleep(0.2)
    if how == "writes":
        run._begin_save(0, 0)
    run._agreement.go_on(run._boundary)
    if how == "ends":
        dist.destroy_process_group()
    else:
        raise ValueError("a mistake of the script's")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4])
