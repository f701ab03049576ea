"""Programs that resume with little memory."""

import os
from typing import Any

import torch
from headway_job import checkpoint
from headway_job.checkpoints.state import memory, tensor_file

from tests.unit.headway_job.checkpoints.training import Training

MIB = 1 << 20


def cramped_resume(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Leave the rank `cramped` no memory, and report how many tensors were read until the run was refused."""
    training = Training(rank, world)
    read = 0
    known = tensor_file.TensorFile._read

    def counted(self: Any, name: str, expected: Any) -> Any:
        nonlocal read
        read += 1
        return known(self, name, expected)

    tensor_file.TensorFile._read = counted  # type: ignore[method-assign]
    memory.most_bytes = lambda *_: 40 if rank == args["cramped"] else None
    try:
        run = checkpoint(args["folder"], **training.parts())
    finally:
        report(read=read)
    report(start=run.start)
    run.close()


class Stage:
    """A part of a model that each rank saves by itself, with other tensors than those of the other ranks."""

    def __init__(self, rank: int, mib: int = 1) -> None:
        self.weight = torch.full((mib * MIB // 4 + rank,), float(rank))

    def state_dict(self) -> Any:
        return {"weight": self.weight}

    def load_state_dict(self, state: Any) -> None:
        self.weight = state["weight"]


def averages_on_rank_0(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Save, where rank 0 alone has a second object of its own, and report what was restored and saved.

    The node has `left` bytes for a save and `most` for a resume.
    """
    os.environ["LOCAL_WORLD_SIZE"] = str(world)
    memory.left_bytes = lambda *_: args.get("left")
    memory.most_bytes = lambda share=1, *_: args["most"] // share if "most" in args else None
    run = checkpoint(args["folder"], stage=Stage(rank), averages=Stage(0, 2) if rank == 0 else None)
    report(start=run.start)
    run.save()
    run.step(run.start)
    run.close()
    report(saved=run.saved_step)


def stages(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Save, with memory for the stage of one rank but not for those of two, and report what was restored."""
    memory.most_bytes = lambda *_: MIB * 3 // 2
    stage = Stage(rank)
    if args["resumed"]:
        stage.weight.zero_()
    run = checkpoint(args["folder"], stage=stage)
    report(start=run.start, weight=[float(stage.weight.mean()), len(stage.weight)])
    run.save()
    run.step(run.start)
    run.close()
