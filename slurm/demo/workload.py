"""The jobs of the demonstration: twelve sbatch scripts in three sizes, as users write them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Size = Literal["small", "medium", "large"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One sbatch script. Invariant: its text holds the whole request; the submission adds no options."""

    name: str
    size: Size
    request: tuple[str, ...]
    """The request, as sbatch options."""
    nodes: int
    """Smallest number of nodes that satisfies the request."""
    gpus: int
    """GPUs that one job (or one task of an array) requests."""
    steps: int
    time_limit_min: int
    submit_at_s: float
    """Seconds from the start of the run to the submission."""
    array: int = 0
    """Tasks of a job array; 0 for no array."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each job that Slurm creates from the script."""
        return tuple(label(self.name, task) for task in range(self.array)) if self.array else (self.name,)

    @property
    def request_text(self) -> str:
        """The request as a user types it."""
        return " ".join(self.request)

    def script(self) -> str:
        """Return the text of the sbatch file."""
        array = [f"--array=0-{self.array - 1}"] if self.array else []
        options = [f"--job-name={self.name}", *array, *self.request, f"--time={self.time_limit_min}"]
        options.append("--output=" + ("%x_%a.log" if self.array else "%x.log"))
        head = "".join(f"#SBATCH {option}\n" for option in options)
        return f"#!/bin/bash\n{head}{_BODY}srun python train.py --size {self.size} --steps {self.steps}\n"


def label(name: str, task: int | None) -> str:
    """Return the label of a job, or of one task of an array."""
    return name if task is None else f"{name}_{task}"


_BODY = """
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export GLOO_SOCKET_IFNAME=eth0
export TORCHINDUCTOR_CACHE_DIR=$PWD/cache  # not in /tmp
"""

_STEPS: dict[Size, int] = {"small": 50, "medium": 24, "large": 24}


def _training(
    submit_at_s: float, name: str, size: Size, request: str, nodes: int, gpus: int, limit_min: int, array: int = 0
) -> Training:
    return Training(
        name=name,
        size=size,
        request=tuple(request.split()),
        nodes=nodes,
        gpus=gpus,
        steps=_STEPS[size],
        time_limit_min=limit_min,
        submit_at_s=submit_at_s,
        array=array,
    )


TWELVE = (
    _training(0.0, "bert-a", "medium", "-N2 --gpus-per-node=6", nodes=2, gpus=12, limit_min=4),
    _training(1.0, "resnet-a", "small", "-N1 -n2 --gres=gpu:4", nodes=1, gpus=4, limit_min=2),
    _training(1.5, "gpt", "large", "-N4 --gpus-per-node=8", nodes=4, gpus=32, limit_min=8),
    _training(3.0, "bert-b", "medium", "-n2 --gpus=16", nodes=2, gpus=16, limit_min=4),
    _training(4.5, "sweep", "small", "-N1 -n2 --gres=gpu:2", nodes=1, gpus=2, limit_min=2, array=2),
    _training(6.0, "resnet-b", "small", "-N1 -n2 --gpus-per-node=4", nodes=1, gpus=4, limit_min=2),
    _training(7.5, "bert-c", "medium", "-N2 --gres=gpu:4", nodes=2, gpus=8, limit_min=4),
    _training(9.0, "vit", "large", "-N3 --gpus-per-node=8", nodes=3, gpus=24, limit_min=6),
    _training(10.5, "resnet-c", "small", "-n2 --gpus=8", nodes=1, gpus=8, limit_min=2),
    _training(12.0, "bert-d", "medium", "-N2 --gpus-per-node=8", nodes=2, gpus=16, limit_min=4),
    _training(13.5, "resnet-d", "small", "-N1 -n2 --gres=gpu:8", nodes=1, gpus=8, limit_min=2),
    _training(15.0, "resnet-e", "small", "-n2 --gpus=2", nodes=1, gpus=2, limit_min=2),
)
"""For four nodes of eight GPUs: thirteen jobs, one to four nodes each, by --gres, --gpus and --gpus-per-node."""

NODES = 4
GPUS_PER_NODE = 8


def short_mix() -> tuple[Training, ...]:
    """Return five of the scripts with few steps, for tests."""
    kept = {"bert-a", "gpt", "sweep", "resnet-c", "bert-d"}
    return tuple(
        replace(training, steps=6, submit_at_s=training.submit_at_s / 4, array=training.array)
        for training in TWELVE
        if training.name in kept
    )
