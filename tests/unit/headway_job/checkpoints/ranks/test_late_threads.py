"""Threads of gloo that are late do not break the end of a rank."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.returning.job import EAGER_TORCH
from tests.unit.headway_job.checkpoints.conftest import JOBSIDE, ROOT

SOURCE = Path(__file__).with_name("late_threads.c")
LATE_US = 20_000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        pytest.skip("no C compiler: install gcc and libc6-dev")
    made = tmp_path_factory.mktemp("late") / "late_threads.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"], check=True)
    return made


@pytest.mark.parametrize(
    "how", ["closes", *(pytest.param(how, marks=pytest.mark.slow) for how in ("breaks", "fails", "forks"))]
)
def test_a_rank_ends_as_its_program_does_however_late_the_threads_are(tmp_path: Path, library: Path, how: str) -> None:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, JOBSIDE, EAGER_TORCH.parent))),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "LD_PRELOAD": str(library),
        "LATE_US": str(LATE_US),
    }
    program = (sys.executable, "-m", "tests.unit.headway_job.checkpoints.ranks.late_threads")
    ranks = [
        subprocess.Popen(
            [*program, str(rank), str(tmp_path / "meeting"), str(tmp_path / "checkpoints"), how],
            env=env, cwd=ROOT, text=True, stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        logs = [rank.communicate(timeout=240)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()

    if "late\n" not in logs[0]:
        pytest.skip("this torch has no such function, so its threads cannot be delayed")
    assert [rank.returncode for rank in ranks] == [int(how == "fails")] * 2, logs
