"""Texts that real releases of Slurm have printed.

Those of 22.05, 24.11 and 26.05 are part of the repository: `python -m tests.recordings` has written them. Those of 25.11, which no
registry of packages has, are outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from controller.slurm.model.job import SlurmJob
from controller.slurm.scontrol.parse import parse_job
from tests.unit.controller.slurm.scontrol.text import CLOCK

OF_RELEASES = {
    release.name: release
    for release in sorted((Path(__file__).parents[1] / "recorded").iterdir())
    if release.is_dir() and release.name[0].isdigit()
}
"""Release → folder of its texts in the repository."""

VARIABLE = "HEADWAY_SLURM_TEXTS"
"""Environment variable that names the folder. It has one folder for each release."""
BESIDE = Path("../shared/data/slurm-text")
"""Place of that folder without the variable, from the checkout."""
_CHECKOUT = Path(__file__).parents[5]


def beside_or_named(environment: Mapping[str, str], checkout: Path = _CHECKOUT) -> Path | None:
    """Return the folder of recorded texts, as the variable names it, else beside the checkout; None if there is none."""
    if named := environment.get(VARIABLE):
        return Path(named)
    beside = checkout / BESIDE
    return beside if beside.is_dir() else None


_TIME = re.compile(r"(?<==)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?= |$)")


def lines(folder: Path, file: str) -> Iterator[str]:
    """Yield the lines of a text, with times as the client makes Slurm print them."""
    for line in (folder / file).read_text().splitlines():
        yield _TIME.sub(lambda found: f"{CLOCK.token}{int(datetime.fromisoformat(found[0]).timestamp())}", line)


def jobs(folder: Path, file: str) -> dict[str, SlurmJob]:
    """Return the jobs of a text by name; the first component of a heterogeneous job as "NAME+True"."""
    found = [parse_job(line, CLOCK).jobs[0] for line in lines(folder, file) if line.startswith("JobId=")]
    return {f"{job.name}+{job.raw_id == job.het_job_id}" if job.het_job_id else job.name: job for job in found}
