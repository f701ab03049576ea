"""Standing still after a save that the agent asked for, so that what the job is stopped in is what was saved.

All ranks stand still at the same boundary, by their own agreement, whichever of them has heard the agent. The training's thread
waits inside `run.step`: no collective is open, signals reach the program, and it goes on by itself when nobody comes.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from contextlib import contextmanager
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..hook.save_requests import Order, Orders, answer

_log = logging.getLogger("headway_job")
_SLICE_S = 0.05
_LINE_LOST_NS = 5_000_000_000
"""An agent that is started again is back within so long."""


class Outcome:
    """How a save ended. No problem: it is complete on all ranks."""

    def __init__(self, step: int, problem: str) -> None:
        self.step = step
        self.problem = problem


class Stand:
    """One standing still, from the begin of its save."""

    def __init__(self, step: int, still_ms: int, key: int) -> None:
        self.step = step
        self.key = key
        """Of the newest order that it answers: when that is called off, it ends."""
        self.begun_ns = time.monotonic_ns()
        self.still_ns = still_ms * 1_000_000
        self.outcome: Optional[Outcome] = None
        self.over = False

    def bind(self, order: Order) -> None:
        """It answers this order too, whose time runs from now on."""
        gone_ns = time.monotonic_ns() - self.begun_ns
        self.still_ns = max(self.still_ns, gone_ns + order.still_ms * 1_000_000)
        self.key = order.key
        order.stand = self

    def answer(self, order_id: str) -> Optional[Dict[str, Any]]:
        """The fields of a saved frame; None: not known yet."""
        if self.outcome is not None and self.outcome.problem:
            return answer(order_id, self.step, self.outcome.problem)
        if self.over:
            return answer(order_id, self.step, "it has trained on since")
        return None if self.outcome is None else answer(order_id, self.step, "")


class Standing:
    """One run's part in it. Invariant: the training waits no longer than the agent said, and never once a save has failed."""

    def __init__(self, orders: Orders, rank: int, world_size: int, ask: Callable[[], None]) -> None:
        """`ask` asks the run for a save."""
        self.open = True
        """The run saves when it is asked."""
        self._orders = orders
        self._rank = rank
        self._world_size = world_size
        self._ask = ask
        self._start = 0
        self._saved = -1
        self._writing = False
        self._stand: Optional[Stand] = None
        self._refusal = ""
        """Why this run saves no more, if so."""
        self._wake = threading.Event()

    # ---- by our own thread

    def take(self, order: Order) -> None:
        """A new order, which is in force already."""
        stand = self._stand
        if stand is not None and not stand.over:
            stand.bind(order)
        elif self._refusal:
            self._refuse(order)
        elif self.open:
            self._ask()

    def wake(self) -> None:
        """An order was called off."""
        self._wake.set()

    def state(self) -> Dict[str, Any]:
        """The fields of a checkpoint frame."""
        return {
            "rank": self._rank,
            "world_size": self._world_size,
            "start": self._start,
            "saved": self._saved,
            "saving": self._writing or self._stand is not None,
            "open": self.open,
        }

    # ---- by the training's thread

    def register(self, start: int) -> None:
        """From here on the run saves when it is asked; it began after so many steps."""
        self._start = start
        self._orders.run = self
        order = self._orders.current
        if order is not None and order.stand is None and not order.answered:
            self.take(order)
        self._orders.ring()

    @property
    def wanted(self) -> bool:
        """The agent waits for a save that has not begun."""
        order = self._orders.current
        return order is not None and order.stand is None and not order.answered and self._orders.run is self

    def terms(self) -> Tuple[int, int]:
        """How long to stand still after the save that is wanted, in ms, and by whose order; 0: not at all."""
        order = self._orders.current
        return (order.still_ms, order.key) if order is not None and self.wanted else (0, 0)

    def begun(self, step: int, still_ms: int, key: int) -> None:
        """A save begins, on the terms that all ranks have agreed on."""
        self._writing = True
        if not still_ms or self._orders.is_called_off(key):
            return
        self._stand = stand = Stand(step, still_ms, key)
        order = self._orders.current
        if order is not None and order.stand is None and self._orders.run is self:
            stand.bind(order)

    def stand_still(self) -> None:
        """Waits, if all ranks do; after `begun`, and once the save is being written."""
        stand = self._stand
        if stand is None:
            return
        _log.info("Standing still after step %d, as Headway has asked.", stand.step)
        why = "something was raised"
        try:
            with _told_to_end() as told:
                while not (why := self._why_go_on(stand, told)):
                    self._orders.tend()
                    self._wake.wait(_SLICE_S)
                    self._wake.clear()
        finally:
            stand.over = True
            self._stand = None
            self._orders.ring()
            _log.info("Going on after step %d: %s.", stand.step, why)

    def call_off(self, why: str) -> None:
        """The run saves no more: whatever the agent asks is answered with that."""
        self._refusal, self.open = why, False
        if self.wanted and self._orders.current is not None:
            self._refuse(self._orders.current)
        self._orders.ring()

    def close(self) -> None:
        """The run ends."""
        self.open = False
        self._orders.ring()

    def _refuse(self, order: Order) -> None:
        stand = Stand(self._saved, 0, order.key)
        stand.outcome, stand.over = Outcome(self._saved, self._refusal), True
        order.stand = stand

    def _why_go_on(self, stand: Stand, told: List[int]) -> str:
        """Empty: not yet."""
        now_ns, lost_ns = time.monotonic_ns(), self._orders.lost_ns
        if stand.outcome is not None and stand.outcome.problem:
            return "the save failed"
        if self._orders.is_called_off(stand.key):
            return "the job stays where it is"
        if told:
            return "SIGTERM was handled by the program"
        if now_ns - stand.begun_ns >= stand.still_ns:
            return f"nobody stopped the job within {round(stand.still_ns / 1e9, 1):g} s"
        if lost_ns is not None and now_ns - max(lost_ns, stand.begun_ns) >= _LINE_LOST_NS:
            return "the node's agent is away"
        return ""

    # ---- by the writing thread

    def ended(self, outcome: Outcome) -> None:
        """The writing of the save that began last has ended."""
        if not outcome.problem:
            self._saved = outcome.step
        stand = self._stand
        if stand is not None:
            stand.outcome = outcome
            self._wake.set()
        self._writing = False
        self._orders.ring()


@contextmanager
def _told_to_end() -> Iterator[List[int]]:
    """Holds a number once the program's own handler of SIGTERM was called: it may have to go on to end as its author wants."""
    told: List[int] = []
    before: Any = signal.getsignal(signal.SIGTERM)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield told
        return

    def on_signal(number: int, frame: Optional[FrameType]) -> None:
        told.append(number)
        before(number, frame)

    signal.signal(signal.SIGTERM, on_signal)
    try:
        yield told
    finally:
        if signal.getsignal(signal.SIGTERM) is on_signal:
            signal.signal(signal.SIGTERM, before)
