"""MARL's environment is offered without a trained agent, and everything that names it says so."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from policies.api import ENTRY_POINT_GROUP
from policies.errors import TrainingError
from policies.learned import marl
from policies.learned.training.systems import SYSTEMS, find_system

DOCS = Path(__file__).parents[5] / "docs"


def test_its_parts_are_no_policy_and_no_system() -> None:
    values = [entry.value for group in (ENTRY_POINT_GROUP, SYSTEMS) for entry in entry_points(group=group)]
    assert values and not [value for value in values if "learned.marl" in value]
    with pytest.raises(TrainingError, match="no system is named 'marl'; installed: "):
        find_system("marl")


def test_the_package_and_the_environments_section_say_that_there_is_no_agent() -> None:
    section = (DOCS / "simulator.md").read_text().partition("## MARL's environment")[2].partition("\n## ")[0]
    assert "There is no trained agent for it" in section
    assert "offered without a trained agent" in str(marl.__doc__)
