"""Programs that keep their checkpoints in a remote store, with a faulty connection."""

import logging
import os
import sys
import time
from typing import Any

from headway_job import checkpoint
from headway_job.checkpoints.run import Run
from headway_job.checkpoints.stores.io_deadline import IoDeadline
from headway_job.checkpoints.stores.remote import RemoteStore

from tests.unit.headway_job.checkpoints.state import sharded
from tests.unit.headway_job.checkpoints.stores.wire import Wire
from tests.unit.headway_job.checkpoints.training import Training, saved_at

SILENCE_S = 0.5
"""Time limit for a store that does not answer on purpose. Others get more time, as a busy machine may be slow."""


def reach(args: dict[str, Any], port: int) -> None:
    """Set up what a user of S3 has: s3fs, and the server's address and keys in the environment."""
    if args["kind"] == "s3":
        sys.path.insert(0, args["packages"])
        os.environ.update(args["keys"], AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", AWS_DEFAULT_REGION="us-east-1")


def behind_wire(args: dict[str, Any]) -> tuple[Wire, RemoteStore]:
    """Return the store at that port, and this rank's connection to it."""
    wire = Wire(args["port"])
    reach(args, wire.port)
    urls = {"s3": f"s3://{args.get('bucket')}/run", "hdfs": f"webhdfs://somebody@127.0.0.1:{wire.port}/runs/run"}
    return wire, RemoteStore(urls[args["kind"]], max_silence_s=20, pauses_s=(0.05, 0.05))


def silence(wire: Wire, store: RemoteStore) -> None:
    """Shorten the time limit from now on."""
    wire.silence()
    store._deadline = IoDeadline(SILENCE_S)


def train(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Train with a store that is given by its URL, as in a script."""
    reach(args, args.get("port", 0))
    training = Training(rank, world)
    run = checkpoint(args["url"], **training.parts(), **args.get("options", {}))
    report(start=run.start)
    for step in run.steps(args["steps"]):
        report(step=step, loss=training.step())
        run._writer.wait(None)
        if step == args.get("end_at"):
            report(saved=run.saved_step)
            os._exit(0)
    report(saved=run.saved_step)


def train_sharded(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Do the same as sharded.train, with a store that is given by its URL."""
    reach(args, args["port"])
    sharded.train(rank, world, {"kind": "fsdp2", "folder": args["url"], **args["training"]}, report)


def cut_in_a_save(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Cut the last rank's connection when a part of its file was sent; restore it later."""
    training = Training(rank, world)
    wire, store = behind_wire(args)
    run = checkpoint(store, **training.parts())
    saved_at(run, training, 2)
    report(before=run.saved_step)
    if rank == world - 1:
        wire.cut_after(args["bytes"])
    saved_at(run, training, 4)
    report(cut=run.saved_step, sent=args["bytes"] - (wire._left or 0))
    wire.mend()
    saved_at(run, training, 6)
    report(after=run.saved_step)


def dead_in_a_save(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let the store stop answering: the training goes on, and saves succeed again when the store is back."""
    training = Training(rank, world)
    wire, store = behind_wire(args)
    run = checkpoint(store, **training.parts())
    saved_at(run, training, 2)
    silence(wire, store)
    run.save()
    begun = steps_while_busy(run, training)
    report(steps=begun, silent=run.saved_step)
    wire.mend()
    store._deadline = IoDeadline(20)
    saved_at(run, training, run._next + 1)
    report(after=run.saved_step, last=run._next)


def steps_while_busy(run: Run, training: Training) -> int:
    """Train until the requested save has ended, and return the number of steps."""
    while not run._writer.busy:
        training.step()
        run.step()
    steps = 0
    while run._writer.busy:
        training.step()
        run.step()
        steps += 1
        time.sleep(0.01)
    return steps


def dead_at_the_end(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let the store stop answering before the last save, which another request follows."""
    training = Training(rank, world)
    wire, store = behind_wire(args)
    run = checkpoint(store, **training.parts())
    saved_at(run, training, 2)
    silence(wire, store)
    saved_at_no_wait(run, training, 4)
    run.save()
    run.close(most_s=args["most_s"])
    report(closed=run.saved_step)


def saved_at_no_wait(run: Run, training: Training, steps: int) -> None:
    run._every_steps = steps
    while run._next < steps:
        training.step()
        run.step()
    run._every_steps = 0


def away_at_the_start(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Start with a store that is down, or that does not answer."""
    logging.getLogger("urllib3").setLevel(logging.DEBUG if args.get("wordy") else logging.WARNING)
    wire, store = behind_wire(args)
    silence(wire, store) if args["how"] == "silent" else wire.cut()
    checkpoint(store, **Training(rank, world).parts())
