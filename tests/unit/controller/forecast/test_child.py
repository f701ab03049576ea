"""The forecasting process yields to everything else, and still runs on a machine whose processes are all nice."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import os, sys
from controller.forecast import child
os.nice(int(sys.argv[1]) - os.nice(0))
child._limit_itself()
print(os.nice(0))
"""


@pytest.mark.parametrize(("before", "after"), [(10, 15), (19, 19)])
def test_its_nice_value_is_15_at_least_and_does_not_add_up(before: int, after: int) -> None:
    if os.nice(0) > before and os.getuid() != 0:
        pytest.skip("only root can make a process less nice")
    argv = (sys.executable, "-c", CODE, str(before))
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stdout) == after
