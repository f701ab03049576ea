"""Everything here breaks a real Slurm or a real Headway on purpose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.conftest import TEST_S

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{HERE}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):  # of ten thousand items: `is_relative_to` takes a second for them
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_S))
