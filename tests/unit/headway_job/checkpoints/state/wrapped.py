"""Programs whose state has tensors without memory of their own, or objects that cannot be saved."""

import sys
from pathlib import Path
from typing import Any

import torch
from headway_job import checkpoint

from tests.unit.headway_job.checkpoints.training import Training, saved_at


class Wrapped(torch.Tensor):
    """A wrapper as those of quantization: its values are in another tensor, and its own address is 0."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Wrapped":
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.held = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:  # type: ignore[override]
        found = function(*(one.held if isinstance(one, cls) else one for one in given), **(named or {}))
        return cls(found) if isinstance(found, torch.Tensor) else found


class Changing:
    """An object of the user whose state changes."""

    now: Any = 1

    def state_dict(self) -> Any:
        return {"now": self.now}

    def load_state_dict(self, state: Any) -> None:
        self.now = state["now"]


def at_once(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Give a model with a wrapper."""
    model = torch.nn.Linear(2, 2)
    model.weight = torch.nn.Parameter(Wrapped(torch.ones(2, 2)))
    checkpoint(args["folder"], model=model)


def later(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Save, then save with something else in the state, then save without it."""
    training, thing = Training(rank, world), Changing()
    run = checkpoint(args["folder"], **training.parts(), thing=thing)
    saved = []
    values = {"wrapper": Wrapped(torch.ones(2)), "object": Path()}
    if args["what"] == "scalar":
        import numpy

        values["scalar"] = numpy.float64(0.5)
    for steps, value in ((2, 1), (4, values[args["what"]]), (6, 1)):
        thing.now = value
        saved_at(run, training, steps)
        saved.append(run.saved_step)
        if steps == 4:
            report(folders=sorted(path.name for path in Path(args["folder"]).iterdir()))
    report(saved=saved)
    run.close()
    sys.stdout.flush()
