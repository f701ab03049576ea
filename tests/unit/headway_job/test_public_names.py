"""The names that scripts use: `headway_job.checkpoint`, and the errors that it raises."""

from __future__ import annotations

import subprocess
import sys

import headway_job
import pytest

from tests.unit.headway_job.agent import JOBSIDE


def test_scripts_can_catch_the_errors() -> None:
    from headway_job.checkpoints import errors

    assert headway_job.Refused is errors.Refused
    assert headway_job.CheckpointError is errors.CheckpointError
    assert headway_job.mishaps.Refused is errors.Refused  # as it was documented earlier
    with pytest.raises(AttributeError, match="no attribute 'refused'"):
        _ = headway_job.refused


def test_checkpoint_is_a_function_also_after_its_first_call() -> None:
    pytest.importorskip("torch")
    from headway_job.checkpoints import run

    assert callable(headway_job.checkpoint)
    with pytest.raises(headway_job.Refused, match="must be at least 1"):
        headway_job.checkpoint(keep=0)
    with pytest.raises(headway_job.Refused):
        headway_job.checkpoint(keep=0)
    assert headway_job.checkpoints.run is run


def test_an_import_alone_loads_neither_torch_nor_the_rest_of_the_package() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(JOBSIDE)!r}); import headway_job\n"
        "print(sorted(name for name in sys.modules if name.startswith(('headway_job', 'torch'))))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['headway_job', 'headway_job.started']\n"
