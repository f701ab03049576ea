"""Outcomes in a file, so that a later run can play some cases again and keep those of the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.parity.outcome import CaseOutcome, CommandOutcome, JobOutcome
from tests.parity.report.result import Result

Outcomes = dict[str, tuple[CaseOutcome, CaseOutcome]]
"""Case → its outcomes on Slurm alone and under Headway."""


def read(path: Path) -> Outcomes:
    """Return the outcomes in a file; none when there is no such file."""
    if not path.exists():
        return {}
    return {name: (_case(pair["alone"]), _case(pair["headway"])) for name, pair in json.loads(path.read_text()).items()}


def write(path: Path, results: Iterable[Result]) -> None:
    """Replace the file by the outcomes of these results."""
    played = {
        result.case.name: {"alone": result.alone.as_json(), "headway": result.headway.as_json()}
        for result in results
        if not result.judgement.reason
    }
    path.write_text(json.dumps(played, indent=1) + "\n")


def _case(fields: Mapping[str, Any]) -> CaseOutcome:
    return CaseOutcome(
        jobs={label: _job(job) for label, job in fields["jobs"].items()},
        commands={label: CommandOutcome(**command) for label, command in fields["commands"].items()},
        problem=fields["problem"],
    )


def _job(fields: Mapping[str, Any]) -> JobOutcome:
    return JobOutcome(**{**fields, "tasks": tuple(fields["tasks"])})
