"""The end of a program waits for a save that it has begun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.returning.job import EAGER_TORCH
from tests.unit.headway_job.checkpoints.conftest import JOBSIDE, ROOT
from tests.unit.headway_job.checkpoints.test_resume import checkpoints


def test_a_store_may_still_use_thread_pools(folder: Path) -> None:
    path = os.pathsep.join(map(str, (ROOT, JOBSIDE, EAGER_TORCH.parent)))
    program = (sys.executable, "-m", "tests.unit.headway_job.checkpoints.pooled_store", str(folder))
    done = subprocess.run(
        program, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True, timeout=100
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert [int(path.name.split("-")[1]) for path in checkpoints(folder)] == [2]
