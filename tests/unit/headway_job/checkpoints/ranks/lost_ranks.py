"""Programs of ranks that leave the others. They train without collectives, so if a rank blocks, it blocks in our code."""

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from headway_job import checkpoint
from headway_job.checkpoints import run as run_module
from headway_job.checkpoints.ranks import save_agreement
from headway_job.checkpoints.run import Run
from torch.distributed import distributed_c10d

from tests.unit.headway_job.checkpoints.training import Training, saved_at

NO_STACK = 1 << 46
"""More memory than there is: no thread can be started with a stack of that size."""
PAUSE_S = 0.01
HANGS_S = 90


class MistakeError(Exception):
    """An error of the script."""


def begun(args: dict[str, Any], rank: int) -> tuple[Run, Training]:
    """Return a run that has saved its second step. If it blocks, an alarm ends it."""
    signal.alarm(HANGS_S)
    run_module._END_MEETING_S = 0.3
    training = Training(rank, 1)
    run = checkpoint(args["folder"], **training.parts())
    saved_at(run, training, 2)
    run._every_steps = 0
    return run, training


def trained(run: Run, training: Training, steps: int) -> int:
    """Train up to so many steps, with a request for a save at each; return the number of steps done."""
    while run._next < steps:
        run.save()
        training.step()
        run.step()
        time.sleep(PAUSE_S)
    return run._next


def wait_for(path: Path, ranks: int) -> None:
    """Wait until so many other ranks have ended their training."""
    while len(list(path.glob("ended-*"))) < ranks:
        time.sleep(PAUSE_S)


def part(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let the last rank leave the others in its fourth step, and wait until they have ended."""
    save_agreement._PERIOD_NS = 0
    run, training = begun(args, rank)
    if args["how"] == "is silent":
        expect_soon(run)
    ended = Path(args["folder"]).parent
    if rank < world - 1:
        report(steps=trained(run, training, args["steps"]), closed_first=False)
        run.close(most_s=5)
        report(closed=True, saved=run.saved_step)
        (ended / f"ended-{rank}").touch()
        return
    trained(run, training, 3)
    try:
        depart(run, args["how"])
    except MistakeError:
        report(closed=True)
    if args["how"] in ("loses its connections", "cannot meet"):
        trained(run, training, args["steps"])
    wait_for(ended, world - 1)
    run.close(most_s=5)
    report(saved=run.saved_step)


def expect_soon(run: Run) -> None:
    """Let the ranks wait for each other for half a second from here on: only what is saved already is certain."""
    ranks: Any = run._ranks
    distributed_c10d._set_pg_timeout(timedelta(seconds=0.5), ranks._training.group)


def depart(run: Run, how: str) -> None:
    """Leave in the way that the test names."""
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
    """Shut down all connections of this process, as if the network were lost."""
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as found:
            if found.family == socket.AF_INET:
                found.shutdown(socket.SHUT_RDWR)


class Broken:
    """A torch.distributed that raises in each exchange of this rank."""

    ReduceOp = dist.ReduceOp
    destroy_process_group = staticmethod(dist.destroy_process_group)
    all_reduce = staticmethod(eval("lambda *_, **__: 1 / 0", {"__name__": "torch.distributed.broken"}))


def late(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let the last rank reach its end after the others have stopped waiting for it."""
    run, training = begun(args, rank)
    trained(run, training, 4)
    ended = Path(args["folder"]).parent
    if rank == world - 1:
        wait_for(ended, world - 1)
    run.save()
    run.close(most_s=0.2)
    report(saved=run.saved_step)
    (ended / f"ended-{rank}").touch()
    wait_for(ended, world)


def no_thread(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let one rank fail to start the thread for the second save."""
    run, training = begun(args, rank)
    run._writer._ended = lambda outcome: report(problem=outcome.problem)
    report(saved=run.saved_step)
    if rank == args["rank"]:
        threading.stack_size(NO_STACK)
    saved_at(run, training, 4)
    report(saved=run.saved_step)
    threading.stack_size(0)
    saved_at(run, training, 6)
    report(saved=run.saved_step)
    run.close()


def raises_last(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let the last rank raise after its last step, which the others notice at their end."""
    run, training = begun(args, rank)
    run._agreement._steps_between = 1000
    training.step()
    run.step()
    run.save()
    if rank == world - 1:
        try:
            depart(run, "raises")
        except MistakeError:
            wait_for(Path(args["folder"]).parent, world - 1)
    run.close()
    report(saved=run.saved_step)
    (Path(args["folder"]).parent / f"ended-{rank}").touch()


def interrupted(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let a signal handler of the program raise on the last rank, during our exchange."""
    save_agreement._PERIOD_NS = 0  # the ranks exchange at each step, on machines of any speed
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
    report(raised=raised, steps=run._next)
    run.close()
