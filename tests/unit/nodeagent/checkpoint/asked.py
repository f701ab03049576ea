"""Programs that are asked by an agent to save and stand still, run by hatchery.py."""

import os
import signal
import time
from typing import Any

import headway_job
from headway_job import checkpoint, presence, standing, teller
from headway_job.local_store import LocalStore

from tests.unit.nodeagent.checkpoint.training import Training, Unwritable


def begin_telling(path: str) -> None:
    """As torch's import does in a process that is not forked from one that has imported it."""
    os.environ["HEADWAY_JOB_SOCKET"] = path
    presence._SETTLE_S = 0.0
    teller._TURN_S = 0.2
    presence._presence = None
    headway_job.begin()


def train(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """Trains `steps` steps, with what the test wants to happen on the way."""
    begin_telling(args["socket"])
    standing._LINE_LOST_NS = round(args.get("line_lost_s", 5.0) * 1e9)
    if "sigterm" in args:
        signal.signal(signal.SIGTERM, Ending(args["sigterm"], tell))
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts(), **args.get("options", {}))
    if rank == args.get("unwritable"):
        run._saver._shelf.store = LocalStore(args["folder"], Unwritable())
    tell(start=run.start, pid=os.getpid())
    for step in run.steps(args["steps"]):
        tell(step=step, loss=training.step())
        time.sleep(args.get("pause_s", 0.01))
    tell(saved=run.saved_step)


class Ending:
    """A program's own handler of SIGTERM."""

    def __init__(self, how: str, tell: Any) -> None:
        self._how = how
        self._tell = tell

    def __call__(self, number: int, frame: Any) -> None:
        self._tell(handled=number)
        if self._how == "exits":
            raise SystemExit(0)
