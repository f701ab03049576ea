"""Programs that train and save, run by fork_server.py in processes of their own. Each writes what it saw as JSON lines."""

import errno
import importlib
import io
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from headway_job import checkpoint
from headway_job.checkpoints import async_writer as saver
from headway_job.checkpoints.run import Run
from headway_job.checkpoints.state import memory
from headway_job.checkpoints.stores.local import Files, LocalStore
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class CutOff(Files):
    """Ends the process, as kill -9 does, before its nth call that changes the disk; tells how many there were."""

    def __init__(self, nth: int) -> None:
        self.calls = 0
        self._nth = nth

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "calls":
            self.calls += 1
            if self.calls == self._nth:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)


def net(width: int = 8) -> nn.Module:
    """Small, with dropout: its losses depend on the random numbers of every step."""
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Dropout(0.3), nn.Linear(width, 1))


class Training:
    """A model, its optimizer and scheduler, by a seed."""

    def __init__(self, rank: int, world: int) -> None:
        torch.manual_seed(7)
        self.model: nn.Module = net()
        if world > 1:
            self.model = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 5, 0.8)
        torch.manual_seed(100 + rank)
        random.seed(100 + rank)

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}

    def step(self) -> float:
        noise = random.random()
        batch = torch.randn(4, 6)
        loss = (self.model(batch) - batch.sum(1, keepdim=True) * noise).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return float(loss.detach())


def train(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """Trains `steps` steps, asking and dying as told."""
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts(), **args.get("options", {}))
    tell(start=run.start, pid=os.getpid())
    for step in run.steps(args["steps"]):
        if args.get("asks", {}).get(str(step)) == rank:
            os.kill(os.getpid(), signal.SIGUSR1)
        if step == args.get("wait_at") and not wait_for(run, args.get("least", 1)):
            tell(trouble="nothing was saved")
        if step == args.get("die_at"):
            tell(saved=run.saved_step)
            os.kill(os.getpid(), signal.SIGKILL)
        tell(step=step, loss=training.step())
        time.sleep(args.get("pause_s", 0.0))
        if args.get("waits"):
            run._saver.wait(None)
    tell(saved=run.saved_step)


def wait_for(run: Run, least: int) -> bool:
    """Until so many steps are saved. The training stands still meanwhile: all ranks wait at the same step."""
    deadline_s = time.monotonic() + 60
    while (run.saved_step or 0) < least and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return (run.saved_step or 0) >= least


def cut_off(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """Two saves, the second of which meets its end at a call of the disk's."""
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts())
    saved_at(run, training, 3)
    first = run.saved_step
    files = CutOff(args["nth"] if rank == world - 1 else 0)
    run._saver._shelf.store = LocalStore(args["folder"], files)
    saved_at(run, training, 5)
    saved_at(run, training, 6)
    tell(first=first, calls=files.calls, saved=run.saved_step)


def saved_at(run: Run, training: Training, steps: int) -> None:
    """Trains up to so many steps, and saves after the last."""
    run._every_steps = steps
    while run._next < steps:
        training.step()
        run.step()
    run._saver.wait(None)


def restored(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """What a run starts from, without a step. Ranks but the first may have a folder of their own in its place."""
    training = Training(rank, world)
    folder = args.get("others_folder", args["folder"]) if rank else args["folder"]
    run = checkpoint(folder, **training.parts())
    weights = torch.cat([one.detach().flatten() for one in training.model.parameters()])
    tell(start=run.start, weights=weights.tolist(), next=[random.random(), float(torch.rand(()))])
    run.close()


class Lacking(LocalStore):
    """Reads until something is lacking that has nothing to do with the checkpoint."""

    error: Exception

    def read(self, folder: str, name: str) -> Any:
        if name == "rank-1.pt":
            raise self.error
        return super().read(folder, name)


def lacking(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """The last rank has no memory, descriptors or disk, while it checks or while it loads."""
    training = Training(rank, world)
    name = args["error"]
    error = OSError(getattr(errno, name), "no more") if hasattr(errno, name) else {
        "MemoryError": MemoryError(), "RuntimeError": RuntimeError("DefaultCPUAllocator: can't allocate memory")
    }[name]  # fmt: skip
    store = LocalStore(args["folder"])
    if rank == world - 1 and args["when"] == "checked":
        store = Lacking(args["folder"])
        store.error = error
    elif rank == world - 1:
        torch.load = raises(error, torch.load)
    checkpoint(store, **training.parts())


def raises(error: Exception, load: Any) -> Any:
    """torch.load without the memory for a checkpoint; what a run loads while it is set up is small."""

    def call(file: Any, **options: Any) -> Any:
        if not isinstance(file, io.BytesIO):
            raise error
        return load(file, **options)

    return call


def restarted(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """In a job that was requeued."""
    os.environ["SLURM_RESTART_COUNT"] = "1"
    restored(rank, world, args, tell)


def full_disk(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """Saves, then on a full disk, then where there is room again."""
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts())
    saved_at(run, training, 2)
    filler = Path(args["folder"]) / "filler"
    fill_up(filler)
    saved_at(run, training, 4)
    tell(on_full_disk=run.saved_step, folders=sorted(p.name for p in Path(args["folder"]).iterdir()))
    filler.unlink()
    saved_at(run, training, 6)
    tell(afterwards=run.saved_step)


def cramped(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """Rank 0's node has no memory left for the second save."""
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts())
    saved_at(run, training, 2)
    tell(before=run.saved_step)
    known = memory.left_bytes
    if rank == 0:
        memory.left_bytes = lambda share: 40
    saved_at(run, training, 4)
    tell(cramped=run.saved_step)
    memory.left_bytes = known
    saved_at(run, training, 6)
    tell(after=run.saved_step)
    run.close()


def no_interface(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """What gloo takes for the network is not there."""
    training = Training(rank, world)
    os.environ["GLOO_SOCKET_IFNAME"] = "nosuch0"
    checkpoint(args["folder"], **training.parts())


class Counting(LocalStore):
    """Remembers what was opened to be read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.opened: list[str] = []

    def read(self, folder: str, name: str) -> Any:
        self.opened.append(name)
        return super().read(folder, name)


def counted(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """What a rank reads in order to be restored; `args["local"]`: its number on its node, by rank."""
    os.environ["LOCAL_RANK"] = str(args["local"][rank])
    store = Counting(args["folder"])
    run = checkpoint(store, **Training(rank, world).parts())
    tell(start=run.start, opened=sorted(store.opened))
    run.close()


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def storm(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """A signal at every step, and the program's own handler beside ours."""
    heard = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts())
    for step in run.steps(args["steps"]):
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGUSR1)
        tell(step=step, loss=training.step())
    tell(heard=len(heard), saved=run.saved_step)


class Unwritable(Files):
    """A disk that is full."""

    def create(self, name: str, within: int) -> int:
        raise OSError(28, "No space left on device")


def one_cannot_write(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """Rank 1 cannot write the second save."""
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts(), every_steps=2)
    for step in range(6):
        if step == 3 and rank == 1:
            run._saver._shelf.store = LocalStore(args["folder"], Unwritable())
        if step == 5:
            run._saver._shelf.store = LocalStore(args["folder"])
        training.step()
        run.step(step)
        if step % 2:
            run._saver.wait(None)
            tell(saved=run.saved_step)
    run.close()


def apart(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """Each rank's folder is on a disk of its own."""
    saver._LOOK_AGAIN_S = (0.01,)
    training = Training(rank, world)
    folder = Path(args["folder"]) / f"node-{rank}"
    run = checkpoint(str(folder), **training.parts())
    run._saver._ended = lambda outcome: tell(problem=outcome.problem)
    saved_at(run, training, 2)
    tell(saved=run.saved_step, left=sorted(path.name for path in folder.iterdir()))
    run.close()


class Exiting(Files):
    """Ends its thread."""

    def create(self, name: str, within: int) -> int:
        raise SystemExit


def exits(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """The thread that writes is ended from within."""
    training = Training(rank, world)
    run = checkpoint(LocalStore(args["folder"], Exiting()), **training.parts())
    run._saver._ended = lambda outcome: tell(problem=outcome.problem)
    saved_at(run, training, 2)
    tell(saved=run.saved_step)
    run.close()


class Thing:
    """An object of the user's."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def state_dict(self) -> Any:
        return {"state": self._state}

    def load_state_dict(self, state: Any) -> None:
        self._state = state["state"]


class FSDPLinear(nn.Linear):
    """Named as the classes are that fully_shard makes."""


def with_extra(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """A run with one object more."""
    extras: dict[str, dict[str, Any]] = {
        "code": {"extra": Thing(Path)},
        "none": {"extra": object()},
        "sharded": {"model": FSDPLinear(1, 1)},
        "wider": {"model": net(9)},
        "fine": {"extra": Thing([1, "a", None, 2.5])},
    }
    checkpoint(args["folder"], **extras[args["extra"]])


def compiled(rank: int, world: int, args: dict[str, Any], tell: Any) -> None:
    """A model that is compiled by a class of the script's own; the names in what is saved of it."""
    from torch._dynamo.eval_frame import OptimizedModule

    class Compiled(OptimizedModule):
        """Derived."""

    model = torch.compile(nn.Linear(2, 1))
    model.__class__ = Compiled
    run = checkpoint(args["folder"], model=model, every_steps=1)
    run.step()
    run._saver.wait(None)
    (path,) = Path(args["folder"]).glob("step-*/rank-0.pt")
    saved = torch.load(path, weights_only=True)["shared"]["model"]
    tell(saved=sorted(saved), given=sorted(model._orig_mod.state_dict()))
    run.close()


def hatch(rank: int, world: int, meeting: str, name: str, args: dict[str, Any], out: str) -> None:
    """One rank's process, from its fork to its end."""
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    with Path(out).open("w", buffering=1) as file:

        def tell(**row: Any) -> None:
            file.write(json.dumps(row) + "\n")

        module, _, program = name.rpartition(".")
        programs = importlib.import_module(f"{__package__}.{module or 'training'}")
        getattr(programs, program)(rank, world, args, tell)
        if world > 1:
            dist.barrier()
            dist.destroy_process_group()
