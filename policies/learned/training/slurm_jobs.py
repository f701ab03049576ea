"""Training in Slurm jobs, through submitit, for `headway-policy train --submit`.

Each seed is a job. One that Slurm stops to requeue it (a time limit, a preemption) continues from its last checkpoint; so does one
that is submitted again with --resume.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policies.errors import TrainingError
from policies.learned.training.recipes import recipe_of
from policies.learned.training.run.training_run import TrainingRun
from policies.learned.training.systems import find_system
from policies.learned.training.train import TrainingRequest, check_installed, train

TIME_MIN = 240
"""Default time limit of a job, in minutes; a training that needs longer continues in the job's next run."""
LOGS = "slurm"


@dataclass(frozen=True)
class SlurmTraining:
    """The work of a job, however often the job begins."""

    request: TrainingRequest

    def __call__(self) -> str:
        """Train, or continue a training. Returns the card."""
        request = self.request
        return train(replace(request, resume=TrainingRun.is_in(request.folder))).card.to_json()

    def checkpoint(self) -> Any:
        """Return the same work, which submitit does again in the requeued job."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit(every: Sequence[TrainingRequest], options: Mapping[str, str], cluster: str = "slurm") -> list[str]:
    """Submit them and return the job ids. Logs are in the folder `LOGS` beside the trainings' folders. Raises TrainingError."""
    check_installed(("submitit",))
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise TrainingError(
            "--submit needs sbatch, which is not on this machine; run it on a machine of the cluster, or leave it out"
        )
    every = [replace(request, folder=request.folder.absolute()) for request in every]
    for request in every:
        _check(request)
    import submitit

    executor = submitit.AutoExecutor(folder=every[0].folder.parent / LOGS, cluster=cluster)
    executor.update_parameters(
        name=f"train-{every[0].system}", timeout_min=_minutes(options), **_others(options, cluster)
    )
    try:
        return [str(executor.submit(SlurmTraining(request)).job_id) for request in every]
    except submitit.core.utils.FailedJobError as error:
        raise TrainingError(f"Slurm refused the job: {' '.join(str(error).split())}; change --slurm") from error


def options_of(texts: Iterable[str]) -> dict[str, str]:
    """Return options from texts NAME=VALUE. Raises TrainingError."""
    options = {}
    for text in texts:
        name, equals, value = text.removeprefix("--").partition("=")
        if not (name and equals and value):
            raise TrainingError(f"--slurm {text!r} is not an option; give NAME=VALUE, as sbatch has it without --")
        options[name] = value
    return options


def _check(request: TrainingRequest) -> None:
    """Check the request before it is submitted. Raises TrainingError for an error that would otherwise appear only in the job."""
    recipe_of(find_system(request.system), request.settings, request.rounds)
    if not request.resume and TrainingRun.is_in(request.folder):
        raise TrainingError(
            f"{request.folder}: the folder contains a training; continue it (--resume), or give another folder"
        )
    for text in request.overrides.traces:
        path = Path(text.partition(":")[2] or text)
        if not path.exists():
            raise TrainingError(f"{text}: no such file; give a trace that the jobs can read")


def _minutes(options: Mapping[str, str]) -> int:
    text = options.get("time", str(TIME_MIN))
    if not (text.isascii() and text.isdigit() and int(text)):
        raise TrainingError(f"--slurm time={text}: give whole minutes")
    return int(text)


def _others(options: Mapping[str, str], cluster: str) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if name != "time"}
    return {"slurm_additional_parameters": {"requeue": True, **given}} if cluster == "slurm" else {}
