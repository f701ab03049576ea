"""The batch script of a job that can resume, and the records that the job writes in each run."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

EAGER_TORCH = Path(__file__).with_name("eager_torch.py")
"""Module that programs of jobs may import from beside them."""
_PROGRAM = Path(__file__).with_name("returning_job.py")
_SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=1 --time=10 --output={name}.log --job-name={name} --requeue
#SBATCH --open-mode=append
trap '' USR1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) GLOO_SOCKET_IFNAME=eth0
{before}
{srun} {python} returning_job.py {name} {steps} {pause_s}
"""
STAMPED_PYTHON = """bash -c 'BEGUN_S=$EPOCHREALTIME exec python "$@"' bash"""
"""Gives the program the start time of python. The kernel's start time is that of srun's helper, which runs prologs first."""


def script(
    name: str, *, steps: int, pause_s: float, before: str = "", srun: str = "srun", python: str = "python"
) -> str:
    """Return the batch script of a job of two ranks on two nodes. With `STAMPED_PYTHON` the job records the times of each run."""
    return _SCRIPT.format(name=name, steps=steps, pause_s=pause_s, before=before, srun=srun, python=python)


@dataclass(frozen=True, slots=True)
class Start:
    """The start of one rank in one run, up to its first step. Times in seconds since the Unix epoch."""

    rank: int
    first: int
    """Number of the run's first step."""
    begun_s: float
    """Time at which python was started; the next fields are times too."""
    imported_s: float
    """torch and headway_job are imported."""
    joined_s: float
    """The process group is initialized."""
    made_s: float
    """Model and optimizer are created."""
    restored_s: float
    """The checkpoint is restored."""
    stepped_s: float
    """The first step is done."""


@dataclass(frozen=True, slots=True)
class Records:
    """The records that jobs have written into their working folder."""

    folder: Path

    def prepare(self) -> None:
        """Copy the program into the folder."""
        for path in (_PROGRAM, EAGER_TORCH):
            shutil.copy(path, self.folder)

    def hurry(self, name: str) -> None:
        """Let a job make its remaining steps without a pause, in this run and in later ones."""
        (self.folder / f"{name}.hurry").touch()

    def losses(self, name: str) -> list[tuple[int, float]]:
        """Return step and loss of every step, over all runs of the job."""
        pairs = (line.split() for line in self._lines(f"{name}.losses"))
        return [(int(step), float(loss)) for step, loss in pairs]

    def began(self, name: str) -> list[int]:
        """Return the first step of each run."""
        return [int(line) for line in self._lines(f"{name}.began")]

    def saved_steps(self, name: str) -> list[int]:
        """Return the steps with a complete checkpoint."""
        found = self.folder.glob(f"checkpoints/*-{name}/step-*/manifest.json")
        return sorted(json.loads(path.read_text())["step"] for path in found)

    def starts(self, name: str) -> list[Start]:
        """Return the start of every rank that has made its first step, over all runs."""
        return [Start(**json.loads(line)) for line in self._lines(f"{name}.starts")]

    def _lines(self, file: str) -> list[str]:
        """Return the complete lines: the last one may be half written."""
        path = self.folder / file
        text = path.read_text(errors="replace") if path.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()
