"""Jobs of an embedded Slurm that ask for nodes near each other, which it does not know itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.slurm.embedded import view
from controller.slurm.embedded.ctld.job import Job
from controller.slurm.model.job import SlurmJob

NEAR = "near"
"""Name of the jobs that are shown with the option."""


def show_near_nodes(monkeypatch: pytest.MonkeyPatch, option: str = "--switches=1") -> None:
    """Show every job of the name NEAR as one that was submitted with that option."""
    real = view.new_view

    def shown(job: Job) -> SlurmJob:
        found = real(job)
        return replace(found, by_topology=option) if found.name == NEAR else found

    monkeypatch.setattr(view, "new_view", shown)
