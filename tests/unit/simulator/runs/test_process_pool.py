"""The same work for several names, each in a process of its own."""

from __future__ import annotations

import gc
import os
import signal
import sys
import weakref

import pytest
import torch

from simulator.errors import SettingError
from simulator.runs.process_pool import in_parallel
from simulator.runs.progress import OnProgress


def test_results_come_in_the_order_of_names() -> None:
    reported: dict[str, float] = {}

    def work(name: str, tell: OnProgress) -> tuple[str, int]:
        tell(0.5)
        return name, os.getpid()

    found = in_parallel(list("abcde"), work, reported.__setitem__, processes=2)

    assert [name for name, _ in found] == list("abcde")
    assert len({process for _, process in found} | {os.getpid()}) == 6
    assert reported == dict.fromkeys("abcde", 1.0)


@pytest.mark.parametrize("is_there", [True, False])
def test_each_process_takes_one_core(is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    if not is_there:
        monkeypatch.delitem(sys.modules, "torch")

    def work(name: str, tell: OnProgress) -> tuple[int, str | None]:
        return torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")

    try:
        found = in_parallel(["a", "b"], work, lambda name, share: None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    # A later import of torch reads the environment.
    assert found == [(1 if is_there else 2, "1")] * 2


class _InACycle:
    def __init__(self) -> None:
        self.itself = self


def test_garbage_of_the_caller_is_not_finalized_in_its_processes() -> None:
    """The end of a gRPC channel would wait in them for ever for a thread that only the caller has."""
    gc.collect()
    gc.disable()
    try:
        garbage = weakref.ref(_InACycle())

        def work(name: str, tell: OnProgress) -> tuple[bool, bool]:
            own = weakref.ref(_InACycle())
            gc.collect()
            return garbage() is not None, own() is None and gc.isenabled()

        found = in_parallel(["a", "b"], work, lambda name, share: None)
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert found == [(True, True)] * 2


def test_an_error_of_one_process_ends_all() -> None:
    def work(name: str, tell: OnProgress) -> str:
        if name == "b":
            raise SettingError("it cannot be")
        signal.pause()
        return name

    with pytest.raises(SettingError, match="b: it cannot be"):
        in_parallel(list("abc"), work, lambda name, share: None, processes=3)


def test_a_process_that_is_killed_is_named() -> None:
    def work(name: str, tell: OnProgress) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return name

    with pytest.raises(SettingError, match="the process of a was ended by signal 9 before its run was over"):
        in_parallel(["a"], work, lambda name, share: None)


def test_an_unexpected_error_is_not_reported_as_too_little_memory(capfd: pytest.CaptureFixture[str]) -> None:
    def work(name: str, tell: OnProgress) -> str:
        raise RuntimeError("a defect of the program")

    with pytest.raises(SettingError, match=r"the process of a failed with an unexpected error \(1\)") as failed:
        in_parallel(["a"], work, lambda name, share: None)
    assert "memory" not in str(failed.value)
    assert "RuntimeError: a defect of the program" in capfd.readouterr().err
