"""Policies with options as parts of file names, and as a list in a command line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurm.experiments.errors import ExperimentError


def in_file_names(policy: str) -> str:
    """Return a policy with its options, for the names of its files: "dl2:round_s=30" becomes "dl2-round_s-30"."""
    return re.sub(r"[^\w.-]", "-", policy)


def require_different(policies: Sequence[str]) -> None:
    """Raise ExperimentError when two policies are equal, or would have the same names of files: one would find the other's."""
    by_name: dict[str, str] = {}
    for policy in policies:
        name = in_file_names(policy)
        if name in by_name:
            raise ExperimentError(
                f"policies: {by_name[name]} and {policy} are equal, or have the same file names ({name}...); give different ones"
            )
        by_name[name] = policy


def separated(text: str) -> list[str]:
    """Split "A;B;..." into policies, each with its options. Raises ExperimentError when none is given, or two are equal."""
    policies = [policy for policy in map(str.strip, text.split(";")) if policy]
    if not policies:
        raise ExperimentError(f"policies {text!r}: give at least one; `headway-policy list` shows all")
    require_different(policies)
    return policies
