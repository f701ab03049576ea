"""Ctrl-C once, twice, and too late."""

from __future__ import annotations

import signal

import pytest

from slurm.demo.errors import Interrupted
from slurm.demo.interrupts import Interrupts


def test_the_first_signal_interrupts_and_the_next_are_only_answered() -> None:
    told: list[str] = []
    with Interrupts(told.append) as interrupts:
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    assert interrupts.received == signal.SIGTERM
    assert told == ["clearing up; a moment, please"] * 2


def test_once_settled_no_signal_interrupts_but_it_is_remembered() -> None:
    with Interrupts(lambda text: None) as interrupts:
        interrupts.settle()
        signal.raise_signal(signal.SIGINT)

    assert interrupts.received == signal.SIGINT


def test_the_handlers_from_before_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts(lambda text: None):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
