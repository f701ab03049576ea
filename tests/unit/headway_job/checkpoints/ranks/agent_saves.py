"""Programs of which an agent requests a save and a pause; run by fork_server.py."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import headway_job
from headway_job import checkpoint
from headway_job.checkpoints.ranks import pause as pause_module
from headway_job.checkpoints.stores.local import LocalStore
from headway_job.hook import agent_client, process

from tests.unit.headway_job.checkpoints.training import CutOff, Training, Unwritable

PAUSE_S = 0.02


def begin_hook(path: str) -> None:
    """Begin the hook, as the import of torch would; here torch was imported before the fork."""
    os.environ["HEADWAY_JOB_SOCKET"] = path
    process._START_DELAY_S = 0.0
    agent_client._POLL_S = 0.2
    process._hook = None
    headway_job.begin()


def train(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Train `steps` steps, with the events that the test asks for."""
    begin_hook(args["socket"])
    pause_module._AGENT_AWAY_NS = round(args.get("line_lost_s", 60.0) * 1e9)
    if "sigterm" in args:
        signal.signal(signal.SIGTERM, Ending(args["sigterm"], report))
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts(), **args.get("options", {}))
    if rank == args.get("unwritable"):
        run._writer._catalog.store = LocalStore(args["folder"], Unwritable())
    if rank == args.get("dies_writing"):
        run._writer._catalog.store = LocalStore(args["folder"], CutOff(3))
    if "enough" in args:
        threading.Thread(target=end_pause, args=(Path(args["enough"]),), daemon=True).start()
    if "forks" in args:
        threading.Thread(target=fork_often, args=(args, report), daemon=True).start()
    report(start=run.start, pid=os.getpid())
    for step in run.steps(args["steps"]):
        report(step=step, loss=training.step())
        pause(rank, step, args)
        if step == args.get("hears_at"):
            wait_for(lambda: process.save_requests().current)
        if step == args.get("holds_at"):
            wait_for(Path(args["until"]).exists)
    report(saved=run.saved_step)
    if "end" in args:
        wait_for(Path(args["end"]).exists)


def wait_for(true: Any) -> None:
    """Wait until it is true, for a minute at most, so that a failing test ends, too."""
    give_up_s = time.monotonic() + 60
    while not true() and time.monotonic() < give_up_s:
        time.sleep(0.005)


def bare(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Train without a checkpoint."""
    begin_hook(args["socket"])
    training = Training(rank, world)
    for step in range(args["steps"]):
        report(step=step, loss=training.step())
        pause(None, step, args)  # it gets no request


def pause(rank: int | None, step: int, args: dict[str, Any]) -> None:
    """Wait after a step; after `busy` steps, until the test has sent a request and this rank has it, unless it gets none."""
    time.sleep(PAUSE_S)
    if step == args["busy"] - 1:
        asked = Path(args["asked"])
        wait_for(asked.exists)
        if rank is not None and rank not in json.loads(asked.read_text()):
            wait_for(has_heard)


def end_pause(enough: Path) -> None:
    """Let the time of the pause be over once the file exists."""
    wait_for(enough.exists)
    pause = process.save_requests().run._pause
    pause.begun_ns -= pause.length_ns


def has_heard() -> bool:
    """Return True once this rank has a request, or the cancellation of one. Its thread, which a fork stops, is started again."""
    requests = process.save_requests()
    requests.keep_client_running()
    return requests.current is not None or bool(requests._cancelled)


def fork_often(args: dict[str, Any], report: Any) -> None:
    """Fork during the training, as a DataLoader does, once the test has sent a request."""
    wait_for(Path(args["asked"]).exists)
    for _ in range(args["forks"]):
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        time.sleep(0.05)
    report(forked=args["forks"])


class Ending:
    """A program's own handler of SIGTERM."""

    def __init__(self, how: str, report: Any) -> None:
        self._how = how
        self._tell = report

    def __call__(self, number: int, frame: Any) -> None:
        self._tell(handled=number)
        if self._how == "exits":
            raise SystemExit(0)
