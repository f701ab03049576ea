"""Outcomes in a file, so that a later run can play some cases again and keep those of the others."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.parity.outcome import CaseOutcome, CommandOutcome, JobOutcome
from tests.parity.report.result import Result


@dataclass(frozen=True, slots=True)
class Origin:
    """Version of Headway and Slurm to which all outcomes of one file belong.

    Outcomes of two origins in one table would describe no version of Headway.
    """

    commit: str
    """Commit of this checkout, with a "+" if files other than documents were changed since; empty if it is not known."""
    release: str
    """Release of Slurm."""
    policy: str

    def __str__(self) -> str:
        """Return it for a message."""
        return f"commit {self.commit or 'unknown'}, Slurm {self.release}, policy {self.policy}"


class OtherOriginError(Exception):
    """The outcomes of a file are of another origin than those that are to be added."""


def commit_here() -> str:
    """Return the commit of this checkout as `Origin` has it. The documents do not count: `--docs` changes one of them."""
    try:
        commit = _git("rev-parse", "HEAD").stdout.strip()
        changed = _git("diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)docs").returncode != 0
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"{commit}{'+' if changed else ''}" if commit else ""


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    folder = str(Path(__file__).parent)
    return subprocess.run(("git", "-C", folder, *words), capture_output=True, text=True, timeout=30, check=False)


Outcomes = dict[str, tuple[CaseOutcome, CaseOutcome]]
"""Case → its outcomes on Slurm alone and under Headway."""


def read(path: Path, origin: Origin) -> Outcomes:
    """Return the outcomes in a file; none when there is no such file. Raises OtherOriginError."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text())
    found = kept.get("origin")
    if found != asdict(origin):
        had = Origin(**found) if found else "an earlier version of this command"
        raise OtherOriginError(f"{path}: has outcomes of {had}, not of {origin}. Remove it to begin a new record.")
    return {name: (_case(pair["alone"]), _case(pair["headway"])) for name, pair in kept["cases"].items()}


def write(path: Path, results: Iterable[Result], origin: Origin) -> None:
    """Replace the file by the outcomes of these results."""
    played = {
        result.case.name: {"alone": result.alone.as_json(), "headway": result.headway.as_json()}
        for result in results
        if not result.judgement.reason
    }
    path.write_text(json.dumps({"origin": asdict(origin), "cases": played}, indent=1) + "\n")


def _case(fields: Mapping[str, Any]) -> CaseOutcome:
    return CaseOutcome(
        jobs={label: _job(job) for label, job in fields["jobs"].items()},
        commands={label: CommandOutcome(**command) for label, command in fields["commands"].items()},
        problem=fields["problem"],
        second_try=fields.get("second_try", False),
    )


def _job(fields: Mapping[str, Any]) -> JobOutcome:
    return JobOutcome(**{**fields, "tasks": tuple(fields["tasks"])})
