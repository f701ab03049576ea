"""Programs of ranks that part from each other, run by hatchery.py. They train without collectives: whoever hangs, hangs in ours."""

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch.distributed as dist
from headway_job import checkpoint
from headway_job.checkpoints import rank_group as together
from headway_job.checkpoints import run as checkpoints
from headway_job.checkpoints import save_agreement as agreement
from headway_job.checkpoints.run import Run

from tests.unit.headway_job.checkpoints.training import Training, saved_at

NO_STACK = 1 << 46
"""More memory than there is: no thread can be started with a stack of that size."""
PAUSE_S = 0.01
HANGS_S = 90


class MistakeError(Exception):
    """Of the script's."""


def begun(args: dict[str, Any], rank: int) -> tuple[Run, Training]:
    """A run that has saved its second step; one that hangs is a failure, and no reason to wait."""
    signal.alarm(HANGS_S)
    checkpoints._MEET_S = 0.3
    training = Training(rank, 1)
    run = checkpoint(args["folder"], **training.parts())
    saved_at(run, training, 2)
    run._every_steps = 0
    return run, training


def trained(run: Run, training: Training, steps: int) -> int:
    """Trains up to so many steps, asking for a save at each; how many are done."""
    while run._next < steps:
        run.save()
        training.step()
        run.step()
        time.sleep(PAUSE_S)
    return run._next


def wait_for(path: Path, ranks: int) -> None:
    """Until so many others have ended their training."""
    while len(list(path.glob("ended-*"))) < ranks:
        time.sleep(PAUSE_S)


def part(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """The last rank parts from the others in its fourth step, and lives on until they have ended."""
    agreement._PERIOD_NS = 0
    if args["how"] == "is silent":
        together._APART_S, together._own_patience_s = 0.5, lambda _: 0.0
    run, training = begun(args, rank)
    ended = Path(args["folder"]).parent
    if rank < world - 1:
        tell(steps=trained(run, training, args["steps"]), closed_first=False)
        run.close(most_s=5)
        tell(closed=True, saved=run.saved_step)
        (ended / f"ended-{rank}").touch()
        return
    trained(run, training, 3)
    try:
        depart(run, args["how"])
    except MistakeError:
        tell(closed=True)
    if args["how"] in ("loses its connections", "cannot meet"):
        trained(run, training, args["steps"])
    wait_for(ended, world - 1)
    run.close(most_s=5)
    tell(saved=run.saved_step)


def depart(run: Run, how: str) -> None:
    """As the test says."""
    if how == "raises":
        try:
            raise MistakeError
        finally:
            run.close()
    elif how == "ends":
        run.close(most_s=5)
    elif how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "loses its connections":
        lose_connections()
    elif how == "cannot meet":
        run._ranks._dist = Broken()


def lose_connections() -> None:
    """All of this process, as if the network had gone."""
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as found:
            if found.family == socket.AF_INET:
                found.shutdown(socket.SHUT_RDWR)


class Broken:
    """A torch that raises in place of every meeting of this rank."""

    ReduceOp = dist.ReduceOp
    destroy_process_group = staticmethod(dist.destroy_process_group)
    all_reduce = staticmethod(eval("lambda *_, **__: 1 / 0", {"__name__": "torch.distributed.broken"}))


def late(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """The last rank comes to its end when the others have given it up."""
    run, training = begun(args, rank)
    trained(run, training, 4)
    ended = Path(args["folder"]).parent
    if rank == world - 1:
        wait_for(ended, world - 1)
    run.save()
    run.close(most_s=0.2)
    tell(saved=run.saved_step)
    (ended / f"ended-{rank}").touch()
    wait_for(ended, world)


def no_thread(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """One rank cannot start the thread that would write the second save."""
    run, training = begun(args, rank)
    run._saver._ended = lambda outcome: tell(problem=outcome.problem)
    tell(saved=run.saved_step)
    if rank == args["rank"]:
        threading.stack_size(NO_STACK)
    saved_at(run, training, 4)
    tell(saved=run.saved_step)
    threading.stack_size(0)
    saved_at(run, training, 6)
    tell(saved=run.saved_step)
    run.close()


def raises_last(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """The last rank raises after its last step, of which the others hear at their end."""
    run, training = begun(args, rank)
    run._agreement._apart = 1000
    training.step()
    run.step()
    run.save()
    if rank == world - 1:
        try:
            depart(run, "raises")
        except MistakeError:
            wait_for(Path(args["folder"]).parent, world - 1)
    run.close()
    tell(saved=run.saved_step)
    (Path(args["folder"]).parent / f"ended-{rank}").touch()


def interrupted(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """A handler of the program's raises in the midst of our meeting on the last rank."""
    agreement._PERIOD_NS = 0  # they meet at every step, however fast the machine
    run, training = begun(args, rank)

    def handler(number: int, frame: Any) -> None:
        raise MistakeError

    signal.signal(signal.SIGUSR2, handler)
    trained(run, training, 4)
    if rank == world - 1:
        run._agreement._wanted = lambda: os.kill(os.getpid(), signal.SIGUSR2) is None
    raised = 0
    for _ in range(20):
        try:
            training.step()
            run.step()
            time.sleep(PAUSE_S)
        except MistakeError:
            raised += 1
    tell(raised=raised, steps=run._next)
    run.close()
