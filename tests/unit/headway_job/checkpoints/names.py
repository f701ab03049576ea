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


class Each:
    """A model that each rank saves by itself, as the message advises."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def state_dict(self) -> Any:
        return self.model.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.model.load_state_dict(state)


def different_by_rank(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Give objects that differ between the ranks, and report if they are refused."""
    narrow, wide = nn.Linear(2, 2 + (rank if world > 1 else args.get("as_rank", 0))), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(narrow.parameters(), lr=0.1)
    cases: dict[str, dict[str, Any]] = {
        "shapes": {"model": narrow},
        "names": {"model": nn.Sequential(wide) if rank else wide},
        "lists": {"model": [wide] if rank else [wide, nn.Linear(1, 1)]},
        "optimizer": {"optimizer": optimizer},
        "kinds": {"ema": Each(wide) if rank else wide},
        "only rank 1": {"ema": wide if rank else None},
        "each": {"model": wide, "mine": Each(narrow)},
        "lazy": {"model": nn.LazyLinear(2)},
    }
    try:
        run = checkpoint(args["folder"], **cases[args["case"]], **args.get("options", {}))
    except Refused as error:
        report(refused=str(error))
        return
    if args["case"] == "each":
        with torch.no_grad():
            narrow.weight.fill_(rank + 1.0 + run.start)
        run.save()
        run.step(run.start)
    report(start=run.start)
    run.close()
    if args["case"] == "each":
        again = checkpoint(args["folder"], model=wide, mine=Each(narrow.requires_grad_(False)))
        report(start=again.start, weight=float(narrow.weight.mean()))
        again.close()


def stages(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Divide six layers among the ranks, of different sizes each; save, and report what was restored."""
    model, stage = nn.Linear(1, 1), nn.Linear(1, 6 // world + rank)
    nn.init.constant_(model.weight, args["value"])
    nn.init.constant_(stage.weight, args["value"])
    try:
        run = checkpoint(args["folder"], model=model, stage=Each(stage), optional=args["optional"])
    except Refused as error:
        report(refused=str(error))
        return
    report(start=run.start, weights=[float(one.weight.detach().mean()) for one in (model, stage)])
    run.save()
    run.step(run.start)
    run.close()


def mixed_list(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Give a list of a model, of which rank 0's is saved for all, and an object that each rank saves by itself."""
    average, own = nn.Linear(2, 2 + rank * args["differs"]), nn.Linear(2, 2 + rank)
    nn.init.constant_(average.weight, args["value"] + rank)
    nn.init.constant_(own.weight, args["value"] + rank)
    try:
        run = checkpoint(args["folder"], parts=[average, Each(own)])
    except Refused as error:
        report(refused=str(error))
        return
    report(start=run.start, weights=[float(one.weight.detach().mean()) for one in (average, own)])
    run.save()
    run.step(run.start)
    run.close()
