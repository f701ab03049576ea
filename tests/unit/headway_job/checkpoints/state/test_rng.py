"""The global generator of NumPy: a program can replace it by one of another kind, which is saved and restored as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")
import numpy as np
import torch
from headway_job import checkpoint
from headway_job.checkpoints.state import rng

GENERATORS: Any = np.random
"""With functions that NumPy's type hints lack."""
KINDS = ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"]


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT", "HEADWAY_CONTINUE_FROM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("headway_job.checkpoints.run.install_signal_handler", lambda _trigger: None)
    before = GENERATORS.get_bit_generator()
    yield
    GENERATORS.set_bit_generator(before)


def use(kind: str) -> None:
    """Make a new generator of this kind the global one, and draw numbers until its buffers hold some."""
    GENERATORS.set_bit_generator(getattr(np.random, kind)(3))
    np.random.randint(0, 7, 3, dtype="int32")
    np.random.standard_normal(3)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_numpys_generators_is_saved_and_restored(tmp_path: Path, kind: str) -> None:
    use(kind)
    run = checkpoint(str(tmp_path), model=torch.nn.Linear(1, 1))
    run.save()
    run.step(0)
    run.close()
    assert run.saved_step == 1
    expected = np.random.random(5).tolist()
    use(kind)
    again = checkpoint(str(tmp_path), model=torch.nn.Linear(1, 1))
    assert again.start == 1
    assert np.random.random(5).tolist() == expected
    again.close()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_seeded_for_a_rank_that_is_new(kind: str) -> None:
    drawn = []
    for rank in (1, 1, 2):
        use(kind)
        rng.derive(seed=5, step=9, rank=rank)
        drawn.append(np.random.random(5).tolist())
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(("saved", "used"), [("PCG64", "MT19937"), ("MT19937", "PCG64"), ("Philox", "PCG64")])
def test_the_state_of_another_kind_is_left_out_with_a_warning(
    saved: str, used: str, caplog: pytest.LogCaptureFixture
) -> None:
    use(saved)
    state = rng.capture()
    use(used)
    expected = np.random.random(3).tolist()
    use(used)
    rng.restore(state)
    assert np.random.random(3).tolist() == expected
    assert "NumPy's global generator is not restored" in caplog.text
