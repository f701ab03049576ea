"""Programs whose model is sharded over ranks. Their data depend only on the step, not on the number of ranks."""

import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
from headway_job import checkpoint
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.unit.headway_job.checkpoints.training import wait_for

BATCH = 12
"""Rows of all ranks together, which 1, 2 or 3 ranks can divide equally."""


class Net(nn.Module):
    """A model with sizes that no number of ranks divides, with a buffer and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 7)
        self.last = nn.Linear(7, 1)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        out: torch.Tensor = self.last(torch.tanh(self.first(rows)))
        return out


def sharded(kind: str, model: nn.Module, world: int) -> nn.Module:
    """Shard the model as a script would do it."""
    if kind in ("fsdp2", "replicated"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        if kind == "fsdp2":
            mesh = init_device_mesh("cpu", (world,))
        else:
            mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replica", "shard"))
        for part in (model.first, model.last, model):
            fully_shard(part, mesh=mesh)
        return model
    if kind in ("fsdp1", "fsdp1-flat", "fsdp1-own"):
        from torch.distributed.fsdp import FullyShardedDataParallel

        class OwnParallel(FullyShardedDataParallel):
            """A class of the script."""

        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        policy = ModuleWrapPolicy({nn.Linear})
        own_names = kind == "fsdp1"
        wrapper = OwnParallel if kind == "fsdp1-own" else FullyShardedDataParallel
        found: nn.Module = wrapper(
            model, device_id=torch.device("cpu"), use_orig_params=own_names, auto_wrap_policy=policy
        )
        return found
    if kind == "ddp-own":
        return OwnDataParallel(model)
    return DistributedDataParallel(model) if world > 1 else model


class OwnDataParallel(DistributedDataParallel):
    """A class of the script."""


def made(kind: str, world: int, name: str = "AdamW") -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = sharded(kind, Net(), world)
    options = {"lr": 0.02, "momentum": 0.9} if name == "SGD" else {"lr": 0.02}
    return model, getattr(torch.optim, name.removesuffix("-plain"))(model.parameters(), **options)


def train(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Train `steps` steps, and die as the arguments say."""
    if world == 1 and args["kind"] != "ddp":
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model, optimizer = made(args["kind"], world, args.get("optimizer", "AdamW"))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 1.0 if args.get("model_alone") else 0.7)
    parts = {"optimizer": optimizer, "scheduler": scheduler} if not args.get("model_alone") else {}
    before = set(sys.modules)
    run = checkpoint(args["folder"], model=model, **parts, **args.get("options", {}))
    report(before=[name for name in before if "distributed.checkpoint" in name])
    report(start=run.start, imported=sorted(name for name in set(sys.modules) - before if "torch.dist" in name))
    for step in run.steps(args["steps"]):
        if step == args.get("die_at"):
            wait_for(run, args["saved"])
            report(saved=run.saved_step)
            os.kill(os.getpid(), signal.SIGKILL)
        report(step=step, loss=one_step(model, optimizer, rank, world, step))
        scheduler.step()
    report(saved=run.saved_step, rate=scheduler.get_last_lr())


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, world: int, step: int) -> float:
    """Return the loss over all ranks' rows."""
    numbers = torch.Generator().manual_seed(1000 + step)
    rows = torch.randn(BATCH, 5, generator=numbers)
    each = BATCH // world
    own = rows[rank * each : (rank + 1) * each]
    loss = (model(own) - own.sum(1, keepdim=True).sin()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach() / world
    if world > 1:
        dist.all_reduce(mean)
    return float(mean)


class Moody:
    """An object of the user that raises on one rank if it has to."""

    def __init__(self) -> None:
        self.saves = self.loads = True

    def state_dict(self) -> dict[str, Any]:
        if not self.saves:
            raise KeyError("not now")
        return {"mood": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not self.loads:
            raise KeyError("not that")


def moody(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let rank 1's own object raise in the first save, or when it is restored. It comes before the sharded model."""
    signal.alarm(90)  # ends ranks that wait for each other forever
    model, optimizer = made("fsdp1", world)
    own = Moody()
    own.loads = rank == 0 or args["loads"]
    run = checkpoint(args["folder"], own=own, net=model, descent=optimizer, every_steps=2)
    for step in range(4):
        own.saves = rank == 0 or step > 1
        one_step(model, optimizer, rank, world, step)
        run.step(step)
        run._writer.wait(None)
        report(saved=run.saved_step)
    run.close()


def uneven(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Give each rank other parameters, as in a pipeline."""
    model, optimizer = made("fsdp2", world)
    model.register_parameter(f"own_{rank}", nn.Parameter(torch.zeros(2)))
    checkpoint(args["folder"], model=model, optimizer=optimizer)


def options_differ(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Let only rank 0 save by itself."""
    model, optimizer = made("ddp", world)
    checkpoint(args["folder"], model=model, optimizer=optimizer, every_steps=None if rank else 2)


def optimizer_alone(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Give the optimizer without the model whose flat parameters it has."""
    checkpoint(args["folder"], optimizer=made(args["kind"], world)[1])


def elsewhere(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Give an object with a sharded tensor that is no model."""
    model, _ = made("fsdp2", world)
    checkpoint(args["folder"], model=model, average=Average(model))
    report(alive=True)


class Average:
    """An average of the parameters."""

    def __init__(self, model: nn.Module) -> None:
        self._numbers = {name: one.detach().clone() for name, one in model.named_parameters()}

    def state_dict(self) -> dict[str, Any]:
        return self._numbers

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._numbers = state


def older_torch(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Remove the module that names an optimizer's state, as in an older torch."""
    model, optimizer = made("fsdp1", world)
    sys.modules["torch.distributed.checkpoint.state_dict"] = None  # type: ignore[assignment]
    checkpoint(args["folder"], model=model, optimizer=optimizer)
