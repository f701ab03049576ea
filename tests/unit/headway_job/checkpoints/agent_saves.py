"""Programs that are asked by an agent to save and stand still, run by hatchery.py."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import headway_job
from headway_job import checkpoint
from headway_job.checkpoints import pause as standing
from headway_job.checkpoints.stores.local import LocalStore
from headway_job.hook import agent_client as teller
from headway_job.hook import process as presence

from tests.unit.headway_job.checkpoints.training import CutOff, Training, Unwritable

PAUSE_S = 0.02


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
    standing._LINE_LOST_NS = round(args.get("line_lost_s", 60.0) * 1e9)
    if "sigterm" in args:
        signal.signal(signal.SIGTERM, Ending(args["sigterm"], tell))
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts(), **args.get("options", {}))
    if rank == args.get("unwritable"):
        run._saver._shelf.store = LocalStore(args["folder"], Unwritable())
    if rank == args.get("dies_writing"):
        run._saver._shelf.store = LocalStore(args["folder"], CutOff(3))
    if "forks" in args:
        threading.Thread(target=fork_often, args=(args, tell), daemon=True).start()
    tell(start=run.start, pid=os.getpid())
    for step in run.steps(args["steps"]):
        tell(step=step, loss=training.step())
        pause(step, args)
        if step == args.get("hears_at"):
            wait_for(lambda: presence.orders().current)
    tell(saved=run.saved_step)
    if "end" in args:
        wait_for(Path(args["end"]).exists)


def wait_for(true: Any) -> None:
    """Of a test that fails too."""
    give_up_s = time.monotonic() + 60
    while not true() and time.monotonic() < give_up_s:
        time.sleep(0.005)


def bare(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """Trains without a checkpoint."""
    begin_telling(args["socket"])
    training = Training(rank, world)
    for step in range(args["steps"]):
        tell(step=step, loss=training.step())
        pause(step, args)


def pause(step: int, args: dict[str, Any]) -> None:
    """After a step; after `busy` steps until the test has asked something."""
    time.sleep(PAUSE_S)
    if step == args["busy"] - 1:
        wait_for(Path(args["asked"]).exists)


def fork_often(args: dict[str, Any], tell: Any) -> None:
    """Beside the training, as a loader of data does; once something has been asked."""
    wait_for(Path(args["asked"]).exists)
    for _ in range(args["forks"]):
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        time.sleep(0.05)
    tell(forked=args["forks"])


class Ending:
    """A program's own handler of SIGTERM."""

    def __init__(self, how: str, tell: Any) -> None:
        self._how = how
        self._tell = tell

    def __call__(self, number: int, frame: Any) -> None:
        self._tell(handled=number)
        if self._how == "exits":
            raise SystemExit(0)
