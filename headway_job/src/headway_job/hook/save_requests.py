"""What the agent asks of this process: to save and stand still, and to go on. Told by our own thread, obeyed by the training's.

Fields are single objects, each set by one thread; where two threads meet over two of them, each sets its own before it looks
at the other's, so that at least one of them sees both. No lock: the process may fork at any moment.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, Optional

if TYPE_CHECKING:
    from ..checkpoints.pause import Stand, Standing

MOST_STILL_S = 3600.0
"""No agent asks for more."""
_MOST_ID = 255
_REMEMBERED = 64
NOT_REGISTERED = "no checkpoint was registered: headway_job.checkpoint was not called"
ENDED = "its training has ended"


class Order:
    """The agent wants a save, and that all ranks stand still after it."""

    def __init__(self, order_id: str, still_ms: int) -> None:
        self.id = order_id
        self.key = key_of(order_id)
        self.still_ms = still_ms
        self.stand: Optional[Stand] = None
        """The standing still that answers it."""
        self.answered = False


class Orders:
    """Invariant: the newest order that was not called off is the one in force, and it is answered with what is true then."""

    def __init__(self) -> None:
        self.ring: Callable[[], None] = _nothing
        """Wakes our own thread: there is something to tell."""
        self.tend: Callable[[], None] = _nothing
        """Called by a training thread that stands still: our own thread has to be there."""
        self.run: Optional[Standing] = None
        """The newest run of this process."""
        self.current: Optional[Order] = None
        self.lost_ns: Optional[int] = time.monotonic_ns()
        """Since when there is no line to the agent; None: there is one."""
        self._called_off: Deque[int] = deque(maxlen=_REMEMBERED)

    # ---- by our own thread

    def hear_save(self, order_id: Any, still_s: Any) -> None:
        """A save frame; what no agent would say is ignored."""
        if not isinstance(order_id, str) or not 0 < len(order_id) <= _MOST_ID or not isinstance(still_s, (int, float)):
            return
        if not 0 <= still_s <= MOST_STILL_S or self.is_called_off(key_of(order_id)):
            return
        if self.current is not None and self.current.id == order_id:
            self.current.answered = False
            return
        self.current = order = Order(order_id, max(int(still_s * 1000), 1))
        if self.run is not None:
            self.run.take(order)

    def hear_go_on(self, order_id: Any) -> None:
        """A go_on frame: also one that overtook its save."""
        if not isinstance(order_id, str) or len(order_id) > _MOST_ID:
            return
        self._called_off.append(key_of(order_id))
        if self.current is not None and self.current.id == order_id:
            self.current = None
        if self.run is not None:
            self.run.wake()

    def line_is(self, *, up: bool) -> None:
        """There is a line to the agent, or none."""
        if up:
            self.lost_ns = None
        elif self.lost_ns is None:
            self.lost_ns = time.monotonic_ns()

    def state(self) -> Optional[Dict[str, Any]]:
        """The fields of a checkpoint frame; None: no run was registered."""
        run = self.run
        return None if run is None else run.state()

    def answer(self) -> Optional[Dict[str, Any]]:
        """The fields of a saved frame that is still to be told; then set `current.answered`."""
        order = self.current
        if order is None or order.answered:
            return None
        if order.stand is not None:
            return order.stand.answer(order.id)
        if self.run is None:
            return answer(order.id, -1, NOT_REGISTERED)
        return None if self.run.open else answer(order.id, -1, ENDED)

    # ---- by the training's thread

    def is_called_off(self, key: int) -> bool:
        """Whether the order with that key was."""
        return key in self._called_off


def answer(order_id: str, step: int, problem: str) -> Dict[str, Any]:
    """The fields of a saved frame; no problem: it is complete, and this rank stands still."""
    return {"id": order_id, "step": step, "complete": not problem, "problem": problem[:_MOST_ID]}


def key_of(order_id: str) -> int:
    """A number for an id, the same on all ranks: they tell each other numbers."""
    import hashlib

    return int.from_bytes(hashlib.sha256(order_id.encode()).digest()[:7], "big") + 1


def _nothing() -> None:
    pass
