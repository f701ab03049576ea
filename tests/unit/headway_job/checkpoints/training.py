"""Programs that train and save, each in its own process, run by fork_server.py. Each reports in JSON lines."""

import errno
import importlib
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
from headway_job.checkpoints import async_writer
from headway_job.checkpoints.run import Run
from headway_job.checkpoints.state import memory, state_dict, tensor_file
from headway_job.checkpoints.stores.local import Files, LocalStore
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class CutOff(Files):
    """Ends the process, as kill -9 does, before the nth call that changes the disk; and counts these calls."""

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
    """Return a small model with dropout, so that its losses depend on the random numbers of each step."""
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Dropout(0.3), nn.Linear(width, 1))


class Training:
    """A model, its optimizer and its scheduler, from a fixed seed."""

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


def train(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Train `steps` steps, and request saves and die as the arguments say."""
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts(), **args.get("options", {}))
    report(start=run.start, pid=os.getpid())
    for step in run.steps(args["steps"]):
        if args.get("asks", {}).get(str(step)) == rank:
            os.kill(os.getpid(), signal.SIGUSR1)
        if step == args.get("wait_at") and not wait_for(run, args.get("least", 1)):
            report(trouble="nothing was saved")
        if step == args.get("die_at"):
            report(saved=run.saved_step)
            os.kill(os.getpid(), signal.SIGKILL)
        report(step=step, loss=training.step())
        time.sleep(args.get("pause_s", 0.0))
        if args.get("waits"):
            run._writer.wait(None)
    report(saved=run.saved_step)


def wait_for(run: Run, least: int) -> bool:
    """Wait until so many steps are saved. The training pauses meanwhile, as all ranks wait at the same step."""
    deadline_s = time.monotonic() + 60
    while (run.saved_step or 0) < least and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return (run.saved_step or 0) >= least


def cut_off(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Save twice, and die during the second save, before a call that changes the disk."""
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts())
    saved_at(run, training, 3)
    first = run.saved_step
    files = CutOff(args["nth"] if rank == world - 1 else 0)
    run._writer._catalog.store = LocalStore(args["folder"], files)
    saved_at(run, training, 5)
    saved_at(run, training, 6)
    report(first=first, calls=files.calls, saved=run.saved_step)


def saved_at(run: Run, training: Training, steps: int) -> None:
    """Train up to so many steps, and save after the last one."""
    run._every_steps = steps
    while run._next < steps:
        training.step()
        run.step()
    run._writer.wait(None)


def restored(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Report what a run is restored from, without a step. All ranks but the first may use another folder."""
    training = Training(rank, world)
    folder = args.get("others_folder", args["folder"]) if rank else args["folder"]
    run = checkpoint(folder, **training.parts())
    weights = torch.cat([one.detach().flatten() for one in training.model.parameters()])
    report(start=run.start, weights=weights.tolist(), next=[random.random(), float(torch.rand(()))])
    run.close()


class Lacking(LocalStore):
    """Raises an error that has nothing to do with the checkpoint."""

    error: Exception

    def read(self, folder: str, name: str) -> Any:
        if name == "rank-1.safetensors":
            raise self.error
        return super().read(folder, name)


def lacking(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let the last rank run out of memory, descriptors or disk, while it checks or while it loads."""
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
        tensor_file.TensorFile.read = raises(error)
    checkpoint(store, **training.parts())


def raises(error: Exception) -> Any:
    """Return a function that raises."""

    def call(*_: Any) -> Any:
        raise error

    return call


def restarted(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Restore in a job that was requeued."""
    os.environ["SLURM_RESTART_COUNT"] = str(args.get("count", 1))
    if "job_id" in args:
        os.environ["SLURM_JOB_ID"] = args["job_id"]
    restored(rank, world, args, report)


def full_disk(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Save, then save on a full disk, then save with free space again."""
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts())
    saved_at(run, training, 2)
    filler = Path(args["folder"]) / "filler"
    fill_up(filler)
    saved_at(run, training, 4)
    report(on_full_disk=run.saved_step, folders=sorted(p.name for p in Path(args["folder"]).iterdir()))
    filler.unlink()
    saved_at(run, training, 6)
    report(afterwards=run.saved_step)


def cramped(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Leave no memory on the node of rank 0 for the second save."""
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts())
    saved_at(run, training, 2)
    report(before=run.saved_step)
    known = memory.left_bytes
    if rank == 0:
        memory.left_bytes = lambda *_: 40
    saved_at(run, training, 4)
    report(cramped=run.saved_step)
    memory.left_bytes = known
    saved_at(run, training, 6)
    report(after=run.saved_step)
    run.close()


def no_interface(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Name a network interface for gloo that does not exist."""
    training = Training(rank, world)
    os.environ["GLOO_SOCKET_IFNAME"] = "nosuch0"
    checkpoint(args["folder"], **training.parts())


class Counting(LocalStore):
    """Records which files were opened for reading."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.opened: list[str] = []

    def read(self, folder: str, name: str) -> Any:
        self.opened.append(name)
        return super().read(folder, name)


def counted(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Report what a rank reads when it is restored. `args["local"]`: number on its node, for each rank."""
    os.environ["LOCAL_RANK"] = str(args["local"][rank])
    store = Counting(args["folder"])
    run = checkpoint(store, **Training(rank, world).parts())
    report(start=run.start, opened=sorted(store.opened))
    run.close()


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def storm(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Send many signals at each step, to a program that has its own handler, too."""
    heard = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts())
    for step in run.steps(args["steps"]):
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGUSR1)
        report(step=step, loss=training.step())
    report(heard=len(heard), saved=run.saved_step)


class Unwritable(Files):
    """A disk that is full."""

    def create(self, name: str, within: int) -> int:
        raise OSError(28, "No space left on device")


def one_cannot_write(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let the second save of rank 1 fail."""
    training = Training(rank, world)
    run = checkpoint(args["folder"], **training.parts(), every_steps=2)
    for step in range(6):
        if step == 3 and rank == 1:
            run._writer._catalog.store = LocalStore(args["folder"], Unwritable())
        if step == 5:
            run._writer._catalog.store = LocalStore(args["folder"])
        training.step()
        run.step(step)
        if step % 2:
            run._writer.wait(None)
            report(saved=run.saved_step)
    run.close()


def apart(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Give each rank another folder, as if it were on a disk of the node."""
    async_writer._LOOK_AGAIN_S = (0.01,)
    training = Training(rank, world)
    folder = Path(args["folder"]) / f"node-{rank}"
    run = checkpoint(str(folder), **training.parts())
    run._writer._ended = lambda outcome: report(problem=outcome.problem)
    saved_at(run, training, 2)
    report(saved=run.saved_step, left=sorted(path.name for path in folder.iterdir()))
    run.close()


class Exiting(Files):
    """Ends its thread."""

    def create(self, name: str, within: int) -> int:
        raise SystemExit


def exits(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """End the writing thread by SystemExit."""
    training = Training(rank, world)
    run = checkpoint(LocalStore(args["folder"], Exiting()), **training.parts())
    run._writer._ended = lambda outcome: report(problem=outcome.problem)
    saved_at(run, training, 2)
    report(saved=run.saved_step)
    run.close()


class Thing:
    """An object of the user."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def state_dict(self) -> Any:
        return {"state": self._state}

    def load_state_dict(self, state: Any) -> None:
        self._state = state["state"]


class FSDPLinear(nn.Linear):
    """A class with a name like those that fully_shard creates."""


def with_extra(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Create a run with one more object."""
    extras: dict[str, dict[str, Any]] = {
        "code": {"extra": Thing(Path)},
        "none": {"extra": object()},
        "sharded": {"model": FSDPLinear(1, 1)},
        "wider": {"model": net(9), "optional": ["optimizer", "scheduler"]},
        "fine": {"extra": Thing([1, "a", None, 2.5])},
    }
    checkpoint(args["folder"], **extras[args["extra"]])


def compiled(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Save a model that is compiled with a class of the script; report the names of its tensors."""
    from torch._dynamo.eval_frame import OptimizedModule

    class Compiled(OptimizedModule):
        """A class derived from torch's."""

    model = torch.compile(nn.Linear(2, 1), backend="eager")  # the default one takes seconds to load
    model.__class__ = Compiled
    run = checkpoint(args["folder"], model=model, every_steps=1)
    run.step()
    run._writer.wait(None)
    (path,) = Path(args["folder"]).glob("step-*/rank-0.safetensors")
    with path.open("rb") as file:
        saved = state_dict.read(file)["shared"]["model"]
    report(saved=sorted(saved), given=sorted(model._orig_mod.state_dict()))
    run.close()


def run_rank(rank: int, world: int, meeting: str, name: str, args: dict[str, Any], out: str) -> None:
    """Run the process of one rank, from its fork to its end."""
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    with Path(out).open("w", buffering=1) as file:

        def report(**row: Any) -> None:
            file.write(json.dumps(row) + "\n")

        module, _, program = name.rpartition(".")
        programs = importlib.import_module(f"{__package__}.{module or 'training'}")
        getattr(programs, program)(rank, world, args, report)
        if world > 1:
            dist.barrier()
            dist.destroy_process_group()
