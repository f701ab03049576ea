"""Programs whose ranks give different objects."""

from typing import Any

import torch
from headway_job import Refused, checkpoint
from torch import nn


def average_on_rank_0(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Give an average of the model on rank 0 only, and save; report what was restored."""
    model, average = nn.Linear(1, 1), nn.Linear(1, 1) if rank == 0 else None
    nn.init.constant_(model.weight, 1.0)
    if average is not None:
        nn.init.constant_(average.weight, 2.0)
    names = args["names"]
    try:
        run = checkpoint(args["folder"], model=model, **{names[rank]: average, names[1 - rank]: None})
    except Refused as error:
        report(refused=str(error))
        return
    report(start=run.start, weights=[float(one.weight.detach()) for one in (model, average) if one is not None])
    with torch.no_grad():
        for one in (model, average):
            if one is not None:
                one.weight += 10
    run.save()
    for number in range(run.start, run.start + 2):
        run.step(number)
    run.close()
