"""SIGINT and SIGTERM: the first asks the training to stop, the second has its usual effect; and modules import no torch."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from policies.learned.training.run.interrupts import Interrupts


def test_first_signal_is_noted_and_the_second_does_what_it_did(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        assert interrupts.asked is None
        signal.raise_signal(signal.SIGINT)
        assert interrupts.asked == "SIGINT"
        assert "once more to stop at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) == before


def test_afterwards_signals_do_what_they_did() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts():
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] != before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_another_thread_than_the_main_one_has_no_signals_to_note() -> None:
    entered = []

    def enter() -> None:
        with Interrupts() as interrupts:
            entered.append(interrupts.asked)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [None]


def test_pieces_import_no_torch() -> None:
    """Importing torch takes seconds, and heuristics do not need it: only training and serving learned policies import it."""
    names = (
        "algorithms.advantage", "algorithms.replay", "algorithms.rollout", "weights.card", "weights.weights",
        "training.run.early_stop", "training.run.training_run", "training.run.seeding", "training.run.snapshot",
    )  # fmt: skip
    code = "".join(f"import policies.learned.{name}\n" for name in names)
    code += "import sys\nassert 'torch' not in sys.modules, 'torch'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
