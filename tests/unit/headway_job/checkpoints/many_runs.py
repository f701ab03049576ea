"""A program with several runs, one after the other."""

import gc
import weakref
from pathlib import Path
from typing import Any

from headway_job import checkpoint
from headway_job.checkpoints.ranks import rank_group

from tests.unit.headway_job.checkpoints.training import Training


def sweep(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Make so many runs; report their last saves, and the models that are still there."""
    models: list[weakref.ref[Any]] = []
    saved = []
    for number in range(args["runs"]):
        training = Training(rank, 1)
        models.append(weakref.ref(training.model))
        run = checkpoint(str(Path(args["folder"]) / str(number)), **training.parts(), every_steps=2)
        for _ in run.steps(2):
            training.step()
        saved.append(run.saved_step)
        del training, run
    gc.collect()
    report(alive=sum(model() is not None for model in models), saved=saved, kept=len(rank_group._unsettled))
