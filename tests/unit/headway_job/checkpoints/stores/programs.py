"""Programs that keep their checkpoints in a store behind a wire, at which something goes wrong."""

import logging
import os
import sys
import time
from typing import Any

from headway_job import checkpoint
from headway_job.checkpoints.run import Run
from headway_job.checkpoints.stores.io_deadline import Patience
from headway_job.checkpoints.stores.remote import RemoteStore

from tests.unit.headway_job.checkpoints.state import sharded
from tests.unit.headway_job.checkpoints.stores.wire import Wire
from tests.unit.headway_job.checkpoints.training import Training, saved_at

QUIET_S = 0.5
"""Until a store that says nothing on purpose is given up; others may be slow, on a machine that has other things to do."""


def reach(args: dict[str, Any], port: int) -> None:
    """What the job of a user of S3 has: s3fs, and the server's address and keys in the environment."""
    if args["kind"] == "s3":
        sys.path.insert(0, args["packages"])
        os.environ.update(args["keys"], AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", AWS_DEFAULT_REGION="us-east-1")


def behind_wire(args: dict[str, Any]) -> tuple[Wire, RemoteStore]:
    """The store at that port, as this rank reaches it."""
    wire = Wire(args["port"])
    reach(args, wire.port)
    urls = {"s3": f"s3://{args.get('bucket')}/run", "hdfs": f"webhdfs://somebody@127.0.0.1:{wire.port}/runs/run"}
    return wire, RemoteStore(urls[args["kind"]], quiet_s=20, pauses_s=(0.05, 0.05))


def silence(wire: Wire, store: RemoteStore) -> None:
    """From now on."""
    wire.silence()
    store._patience = Patience(QUIET_S)


def train(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """By the URL, as a script would have it."""
    reach(args, args.get("port", 0))
    training = Training(rank, world)
    run = checkpoint(args["url"], **training.parts(), **args.get("options", {}))
    tell(start=run.start)
    for step in run.steps(args["steps"]):
        tell(step=step, loss=training.step())
        run._saver.wait(None)
        if step == args.get("end_at"):
            tell(saved=run.saved_step)
            os._exit(0)
    tell(saved=run.saved_step)


def train_sharded(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """As sharded.train, by the URL."""
    reach(args, args["port"])
    sharded.train(rank, world, {"kind": "fsdp2", "folder": args["url"], **args["training"]}, tell)


def cut_in_a_save(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """The wire of the last rank is cut when some of its file has gone over it; later it is mended."""
    training = Training(rank, world)
    wire, store = behind_wire(args)
    run = checkpoint(store, **training.parts())
    saved_at(run, training, 2)
    tell(before=run.saved_step)
    if rank == world - 1:
        wire.cut_after(args["bytes"])
    saved_at(run, training, 4)
    tell(cut=run.saved_step, sent=args["bytes"] - (wire._left or 0))
    wire.mend()
    saved_at(run, training, 6)
    tell(after=run.saved_step)


def dead_in_a_save(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """The store goes silent; the training goes on, and so does a save when the store is back."""
    training = Training(rank, world)
    wire, store = behind_wire(args)
    run = checkpoint(store, **training.parts())
    saved_at(run, training, 2)
    silence(wire, store)
    run.save()
    begun = steps_while_busy(run, training)
    tell(steps=begun, silent=run.saved_step)
    wire.mend()
    store._patience = Patience(20)
    saved_at(run, training, run._next + 1)
    tell(after=run.saved_step, last=run._next)


def steps_while_busy(run: Run, training: Training) -> int:
    """Trains until the save that was asked for has ended; how many steps that were."""
    while not run._saver.busy:
        training.step()
        run.step()
    steps = 0
    while run._saver.busy:
        training.step()
        run.step()
        steps += 1
        time.sleep(0.01)
    return steps


def dead_at_the_end(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """The store goes silent before the last save, which another request follows."""
    training = Training(rank, world)
    wire, store = behind_wire(args)
    run = checkpoint(store, **training.parts())
    saved_at(run, training, 2)
    silence(wire, store)
    saved_at_no_wait(run, training, 4)
    run.save()
    run.close(most_s=args["most_s"])
    tell(closed=run.saved_step)


def saved_at_no_wait(run: Run, training: Training, steps: int) -> None:
    run._every_steps = steps
    while run._next < steps:
        training.step()
        run.step()
    run._every_steps = 0


def away_at_the_start(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """Nobody there, or nobody who answers."""
    logging.getLogger("urllib3").setLevel(logging.DEBUG if args.get("wordy") else logging.WARNING)
    wire, store = behind_wire(args)
    silence(wire, store) if args["how"] == "silent" else wire.cut()
    checkpoint(store, **Training(rank, world).parts())
