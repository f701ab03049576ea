"""Batch scripts of cases. Each run writes down its begin and its environment in the folder of the case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.parity.case import Job

STEP_FILE = "step.sh"
STEP_TEXT = """#!/bin/bash
# One task of a step: writes down its environment.
env -0 > "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.task.$SLURM_PROCID"
"""
_PRELUDE = """echo $EPOCHREALTIME > "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.begun"
env -0 > "$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.batch"
"""
_FILE = re.compile(r"(\d+)\.(\d+)\.(begun|batch|task\.\d+)")


def batch_script(job: Job) -> str:
    """Return the text of a batch script."""
    directives = f"#SBATCH {job.directives}\n" if job.directives else ""
    return f"#!/bin/bash\n{directives}{_PRELUDE}{job.script}\n"


class Written:
    """Files that the jobs of one case have written.

    `runs` is how often a job had begun when its record was read: it may have begun again before its files were read, and the
    files of that run do not belong to the record.
    """

    def __init__(self, folder: Path) -> None:
        self._runs: dict[str, dict[int, dict[str, Path]]] = {}
        for path in folder.iterdir():
            if found := _FILE.fullmatch(path.name):
                self._runs.setdefault(found[1], {}).setdefault(int(found[2]), {})[found[3]] = path
        self._folder = folder

    def first_begin_s(self, job_id: str) -> float | None:
        """Return the begin of the first run, in seconds since the Unix epoch; None if the job never ran."""
        for _, files in sorted(self._runs.get(job_id, {}).items()):
            if "begun" in files and (text := files["begun"].read_text().strip()):
                return float(text)
        return None

    def environment(self, job_id: str, runs: int) -> dict[str, str]:
        """Return the environment of the batch script in the last of its runs; empty if there is none."""
        files = self._last(job_id, runs)
        return _environment(files["batch"]) if "batch" in files else {}

    def tasks(self, job_id: str, runs: int) -> tuple[dict[str, str], ...]:
        """Return the environments of the tasks of the step in the last of its runs, by rank."""
        files = self._last(job_id, runs)
        ranks = sorted((int(name.removeprefix("task.")), path) for name, path in files.items() if name[:5] == "task.")
        return tuple(_environment(path) for _, path in ranks)

    def output(self, job_id: str) -> str:
        """Return the output of the script; empty if there is none."""
        path = self._folder / f"{job_id}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def _last(self, job_id: str, runs: int) -> Mapping[str, Path]:
        files = {number: paths for number, paths in self._runs.get(job_id, {}).items() if number < runs}
        return files[max(files)] if files else {}


def _environment(path: Path) -> dict[str, str]:
    pairs = (word.partition("=") for word in path.read_text(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs if name.startswith("SLURM") or name == "CUDA_VISIBLE_DEVICES"}
