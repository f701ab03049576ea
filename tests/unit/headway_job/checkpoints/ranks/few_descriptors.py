"""A program that may open few files and sockets."""

import resource
from pathlib import Path
from typing import Any

from headway_job import Refused, checkpoint

from tests.unit.headway_job.checkpoints.training import Training


def limited(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Leave room for so many descriptors up to each of the limits, and train; report the limits afterwards."""
    training = Training(rank, 1)
    in_use = len(list(Path("/proc/self/fd").iterdir())) - 1
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if args["hard"] is None else in_use + args["hard"]
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + args["soft"], hard))
    refused = ""
    try:
        run = checkpoint(args["folder"], **training.parts(), every_steps=1)
    except Refused as error:
        refused = str(error)
    soft, now = resource.getrlimit(resource.RLIMIT_NOFILE)
    report(refused=refused, in_use=in_use, soft=soft, hard=[hard, now])
    if not refused:
        for _ in run.steps(1):
            training.step()
        report(saved=run.saved_step)
