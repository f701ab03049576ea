"""Signals end commands, but neither interrupt a deletion nor end what was told to ignore them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


def output_of(program: str, *words: str, status: int = 0) -> list[str]:
    """Run a Python program with the signal handlers of a new process, also if the tests run under nohup. Return the lines of its
    output."""
    handlers = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    argv = [sys.executable, "-c", handlers + program, *words]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, timeout=120)
    assert done.returncode == status
    return done.stdout.splitlines()


def test_signals_wait_for_the_end_of_a_deletion() -> None:
    program = (
        "import os, signal\nfrom slurm.signals import signals_deferred\n"
        "try:\n    with signals_deferred():\n        os.kill(os.getpid(), signal.SIGINT)\n        print('done')\n"
        "except KeyboardInterrupt:\n    print('then interrupted')\n"
    )
    assert output_of(program) == ["done", "then interrupted"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_wait_also_if_another_thread_could_take_them(number: signal.Signals) -> None:
    program = (
        "import os, sys, threading\nfrom slurm.signals import end_on_signals, signals_deferred\n"
        "end_on_signals()\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "with signals_deferred():\n"
        "    with signals_deferred():\n        os.kill(os.getpid(), int(sys.argv[1]))\n        print('inner', flush=True)\n"
        "    print('outer', flush=True)\n"
        "print('the end')\n"
    )
    assert output_of(program, str(int(number)), status=128 + number) == ["inner", "outer"]


def test_a_deletion_in_another_thread_changes_no_handlers() -> None:
    program = (
        "import signal, threading\nfrom slurm.signals import end_on_signals, signals_deferred\n"
        "end_on_signals()\nbefore = signal.getsignal(signal.SIGTERM)\n"
        "def delete():\n    with signals_deferred():\n        print(signal.getsignal(signal.SIGTERM) is before)\n"
        "thread = threading.Thread(target=delete)\nthread.start()\nthread.join()\n"
    )
    assert output_of(program) == ["True"]


def test_an_ignored_signal_stays_ignored() -> None:
    program = (
        "import os, signal\nfrom slurm.signals import end_on_signals, signals_deferred\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup\n"
        "end_on_signals()\nos.kill(os.getpid(), signal.SIGHUP)\n"
        "with signals_deferred():\n    os.kill(os.getpid(), signal.SIGHUP)\n"
        "print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)\n"
    )
    assert output_of(program) == ["True"]


@pytest.mark.parametrize("experiment", ["elastic", "racks"])
def test_experiments_end_on_signals_before_they_boot_a_cluster(experiment: str) -> None:
    program = (
        "import os, signal, sys\n"
        f"import slurm.experiments.{experiment}.__main__ as experiment\n"
        "experiment.missing = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "experiment.main()\n"
    )
    assert output_of(program, status=128 + signal.SIGTERM) == []
