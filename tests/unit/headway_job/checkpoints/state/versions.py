"""Programs whose model has a module that needs the version with which its state was saved."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from headway_job import checkpoint
from headway_job.checkpoints.state import state_dict
from torch import nn

from tests.unit.headway_job.checkpoints.state.sharded import sharded


class Picky(nn.Linear):
    """A linear layer that loads no state without a version, as torchvision's MNASNet."""

    _version = 2
    seen: Any = None

    def _load_from_state_dict(self, state: Any, prefix: Any, local_metadata: Any, *others: Any) -> None:
        self.seen = local_metadata.get("version")
        if self.seen not in (1, 2):
            raise ValueError(f"the version is {self.seen}")
        super()._load_from_state_dict(state, prefix, local_metadata, *others)


class Stage:
    """An object of the user that has a model, as docs/checkpoints.md shows it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [1, {"model": self.model.state_dict()}]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["parts"][1]["model"])


class Net(nn.Module):
    """A model whose layers have the names that `sharded` knows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Picky(2, 3)
        self.last = nn.Linear(3, 1)


def picky(rank: int, world: int, args: dict[str, Any], report: Any) -> None:
    """Save after a step; report from where the run was restored, and the version that the module was given."""
    kind, model = args["kind"], Net()
    if args.get("earlier"):
        Picky._version = 1
    if world == 1 and kind.startswith("fsdp"):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    if kind == "compiled":
        given: Any = torch.compile(model, backend="eager")
    else:
        given = Stage(model) if kind == "stage" else sharded(kind, model, world)
    run = checkpoint(args["folder"], model=given, every_steps=1)
    report(start=run.start, seen=model.first.seen)
    run.step(run.start)
    run.close()
    report(saved=run.saved_step)


def rewrite(folder: Path, change: Any) -> None:
    """Let a function change the state in each file of a run, with the right digest in the manifest."""
    for path in folder.glob("step-*/rank-*.safetensors"):
        with path.open("rb") as file:
            state = state_dict.read(file)
        change(state)
        with path.open("wb") as file:
            state_dict.encode(state).write(file)
        manifest = path.parent / "manifest.json"
        row, data = json.loads(manifest.read_text()), path.read_bytes()
        row["files"][path.name] = {"size_bytes": len(data), "sha256": sha256(data).hexdigest()}
        manifest.write_text(json.dumps(row))
