"""Ctrl-C once, twice, and too late."""

from __future__ import annotations

import signal

import pytest

from slurm.demo.errors import Interrupted
from slurm.demo.run.interrupts import Interrupts


def test_the_first_signal_interrupts_and_the_next_are_only_answered() -> None:
    reported: list[str] = []
    with Interrupts(reported.append) as interrupts:
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    assert interrupts.received == signal.SIGTERM
    assert reported == ["clearing up; please wait"] * 2


def test_once_settled_no_signal_interrupts_but_it_is_remembered() -> None:
    with Interrupts(lambda text: None) as interrupts:
        interrupts.finish()
        signal.raise_signal(signal.SIGINT)

    assert interrupts.received == signal.SIGINT


def test_the_handlers_from_before_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts(lambda text: None):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_deferred_signal_interrupts_afterwards() -> None:
    reported: list[str] = []
    reached = False
    with Interrupts(reported.append) as interrupts, pytest.raises(Interrupted), interrupts.deferred("a moment"):
        signal.raise_signal(signal.SIGINT)
        reached = True

    assert reached
    assert reported == ["a moment"]


def test_without_a_signal_there_is_nothing_to_defer() -> None:
    with Interrupts(lambda text: None) as interrupts:
        with interrupts.deferred("a moment"):
            pass
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)


def test_a_hangup_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts(lambda text: None) as interrupts:
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert interrupts.received is None
