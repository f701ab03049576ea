"""Policies in file names and command lines: each has names of its own."""

from __future__ import annotations

import pytest

from slurm.experiments.errors import ExperimentError
from slurm.experiments.policy_names import in_file_names, separated


def test_a_policy_with_options_becomes_a_part_of_a_file_name() -> None:
    assert in_file_names("dl2:weights=/srv/trained,round_s=1.5") == "dl2-weights--srv-trained-round_s-1.5"


def test_policies_are_separated_by_semicolons() -> None:
    assert separated("dl2:round_s=30,a=b; drf;") == ["dl2:round_s=30,a=b", "drf"]


@pytest.mark.parametrize("text", ["", ";", "drf;srtf;drf", "drf:a=/x;drf:a=-x"])
def test_policies_without_files_of_their_own_are_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match="policies"):
        separated(text)
