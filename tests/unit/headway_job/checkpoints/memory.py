"""Programs that resume with little memory."""

from typing import Any

from headway_job import checkpoint
from headway_job.checkpoints.state import memory, tensor_file

from tests.unit.headway_job.checkpoints.training import Training


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
