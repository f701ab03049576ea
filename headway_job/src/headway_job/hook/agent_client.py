"""What the thread of ours does: turn by turn it looks at the tally and tells the agent what is new.

Only this thread touches the line while it runs, and it runs only while the program neither forks nor ends.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..profiling import kineto
from ..profiling.comm_overlap import Recording, split
from ..profiling.window import Recorded, Window
from . import process_facts as facts
from .agent_socket import Gone, Line
from .save_requests import Orders
from .step_counter import Tally

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_TURN_S = 1.0
"""How often the agent's frames are looked at; no steps frame comes sooner after another."""
_GLANCE_S = 0.1
"""In a process that saves when it is asked, the agent's frames are looked at so often."""
_PUNCTUAL = 0.99
"""A turn that is due within the next hundredth of its period is due now."""
_LONGEST_INTERVAL_S = 3600.0
_MOST_PROFILE_STEPS = 200
_FRAMES_A_TURN = 16
_READING_PAUSE_S = 0.002
_WARM_STEPS = 10
"""No window before: the first steps fill caches and choose algorithms."""
_MOST_TRIES = 8
"""For one window, where forks keep ending it before it has seen a step."""


class Teller:
    """Invariant: a frame that cannot be sent now is dropped, never kept and never waited for."""

    def __init__(
        self,
        tally: Tally,
        orders: Orders,
        loaded_ns: int,
        may_profile: Callable[[], bool],
        sleep: Callable[[float], bool],
    ) -> None:
        """`sleep` waits so many seconds or until it is rung, and returns True when the thread has to stop."""
        self._tally = tally
        self._orders = orders
        self._loaded_ns = loaded_ns
        self._may_profile = may_profile
        self._sleep = sleep
        self._path = os.environ.get("HEADWAY_JOB_SOCKET", "")
        self._line: Optional[Line] = None
        self._next_try_s = 0.0
        self._next_turn_s = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._interval_s = _TURN_S
        self._ranks: Optional[Tuple[int, int]] = None
        self._groups: List[Dict[str, Any]] = []
        """By torch.distributed: kept when it is taken down, as the job does not become another one at its end."""
        self._hello: Dict[str, Any] = {}
        self._model_key: Any = None
        self._state: Optional[Dict[str, Any]] = None
        """What the agent was told of checkpoints."""
        self._told = (0, 0)
        """The mark of the last steps frame."""
        self._told_s = 0.0
        self._wanted_steps = 0
        self._tries = 0
        self._welcomed = False
        self.window: Optional[Window] = None
        self._recorded: Optional[Recorded] = None

    def run(self) -> None:
        """Until `sleep` says stop."""
        while True:
            now_s = time.monotonic()
            if self._line is None and now_s >= self._next_try_s and self._has_reason():
                self._connect(now_s)
            if self._line is not None:
                self._turn(now_s)
            if self._sleep(self._rest_s()):
                return

    def _rest_s(self) -> float:
        if self._line is None and not self._has_reason():
            return _LONGEST_PAUSE_S
        if self._line is None:
            return max(self._next_try_s - time.monotonic(), 0.01)
        return _TURN_S if self._orders.run is None else min(_TURN_S, _GLANCE_S)

    def _has_reason(self) -> bool:
        """Whether there is anything to connect for: a step was made, or saves can be asked for. Until then the thread sleeps, and
        is rung when there is; a program that only imports torch, or one that loads data for another, takes no connection."""
        return self._tally.mark[0] > 0 or self._orders.run is not None

    def last_words(self) -> None:
        """At exit, in whatever thread that is, once `run` has returned."""
        if self._line is None:
            return
        try:
            if self._hello:
                self._tell_model(self._line)
                self._tell_steps(self._line, math.inf)
                self._tell_orders(self._line)
                self._line.send("bye", {})
            # What is unread when a socket is closed makes its peer see an error in place of our last frames.
            for _ in range(_FRAMES_A_TURN):
                if self._line.receive() is None:
                    break
        except Gone:
            pass
        self.hang_up()

    def hang_up(self) -> None:
        """Closes the connection of this process alone."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
        self._orders.line_is(up=False)

    def _connect(self, now_s: float) -> None:
        try:
            self._line = Line(self._path)
        except (OSError, Gone):
            self._put_off(now_s)
            return
        self._hello, self._model_key, self._state = {}, None, None
        self._next_turn_s = now_s

    def _put_off(self, now_s: float) -> None:
        self._next_try_s = now_s + self._pause_s
        state = self._orders.state()
        longest_s = _FIRST_PAUSE_S if state is not None and state["saving"] else _LONGEST_PAUSE_S
        self._pause_s = min(self._pause_s * 2, longest_s)

    def _turn(self, now_s: float) -> None:
        line = self._line
        assert line is not None
        whole = now_s >= self._next_turn_s or (self._tally.mark[0] > 0 and not self._told[0])
        try:
            if whole:
                self._tell_hello(line)
            if not self._hello:
                return
            for _ in range(_FRAMES_A_TURN):
                frame = line.receive()
                if frame is None:
                    break
                self._hear(frame)
            self._tell_orders(line)
            if not whole:
                return
            self._next_turn_s = now_s + _TURN_S * _PUNCTUAL
            self._tell_model(line)
            self._tell_steps(line, now_s)
            self._tell_profile(line)
            self._open_window()
        except Gone:
            self.hang_up()
            self._put_off(now_s)

    def _hear(self, frame: Dict[str, Any]) -> None:
        """Unknown types, keys and values are ignored."""
        if frame.get("type") == "welcome":
            self._orders.line_is(up=True)
            self._pause_s = _FIRST_PAUSE_S
            interval_s = frame.get("interval_s")
            if isinstance(interval_s, (int, float)) and interval_s > 0:  # not NaN either
                self._interval_s = min(max(float(interval_s), _TURN_S), _LONGEST_INTERVAL_S)
            if not self._welcomed:
                self._want_window(frame.get("profile_steps"))
            self._welcomed = True
        elif frame.get("type") == "profile":
            self._want_window(frame.get("steps"))
        elif frame.get("type") == "save":
            self._orders.hear_save(frame.get("id"), frame.get("still_s"))
        elif frame.get("type") == "go_on":
            self._orders.hear_go_on(frame.get("id"))

    def _want_window(self, steps: Any) -> None:
        if isinstance(steps, int) and not isinstance(steps, bool) and steps > 0 and not self._wanted_steps:
            self._wanted_steps = min(steps, _MOST_PROFILE_STEPS)
            self._tries = _MOST_TRIES

    def _open_window(self) -> None:
        """Where the program profiles itself the window is skipped, not put off."""
        if not self._wanted_steps or self._tally.mark[0] < _WARM_STEPS:
            return
        if self.window is not None or self._tally.errand is not None:
            return
        if self._tries <= 0 or not self._may_profile():
            self._wanted_steps = 0
            return
        self._tries -= 1
        try:
            recorder = kineto.recorder(self._ranks is not None)
        except Exception:
            # Another version's profiler, or one that cannot be kept quiet: no profile then.
            self._wanted_steps = 0
            return
        self.window = Window(self._wanted_steps, self._window_over, recorder, with_queue=self._ranks is not None)
        self._tally.errand = self.window.at_step

    def _window_over(self, recorded: Optional[Recorded]) -> None:
        """In the training thread."""
        self._tally.errand = None
        if recorded is not None:
            self._wanted_steps = 0
            self._recorded = recorded
        self.window = None

    def skip_window(self) -> None:
        """In the training thread: the program's own profiler comes first."""
        self._wanted_steps = 0
        window = self.window
        if window is not None:
            window.abandon()

    def cut_window(self) -> None:
        """In the training thread, before a fork: a profiler must not be running then."""
        window = self.window
        if window is not None:
            window.end()

    def _tell_hello(self, line: Line) -> None:
        self._ranks = facts.ranks() or self._ranks
        hello = facts.hello(self._tally.device, self._ranks, self._loaded_ns)
        if hello != self._hello and line.send("hello", hello):
            self._hello = hello

    def _tell_orders(self, line: Line) -> None:
        """How the job can come back; then what it was asked for."""
        state = self._orders.state()
        if state != self._state and state is not None and line.send("checkpoint", state):
            self._state = state
        order, answer = self._orders.current, self._orders.answer()
        if order is not None and answer is not None and line.send("saved", answer):
            order.answered = True

    def _tell_model(self, line: Line) -> None:
        """From the second step on: by then every optimizer of an ordinary loop has stepped once."""
        if self._tally.mark[0] < 2:
            return
        parameters, optimizers = self._tally.parameters, self._tally.optimizers
        self._groups = facts.groups() or self._groups
        batch_size = self._tally.batch_size
        key = (id(parameters), len(parameters), optimizers, len(self._groups), batch_size)
        if key == self._model_key:
            return
        if line.send("model", facts.model(list(parameters), optimizers, self._groups, batch_size)):
            self._model_key = key

    def _tell_steps(self, line: Line, now_s: float) -> None:
        steps, last_ns = self._tally.mark
        told_steps, told_ns = self._told
        if steps <= told_steps or now_s - self._told_s < self._interval_s:
            return
        if not told_steps:
            told_steps, told_ns = 1, self._tally.first_ns
        fields = {
            "steps": steps,
            "first_ns": self._tally.first_ns,
            "last_ns": last_ns,
            "window_steps": steps - told_steps,
            "window_s": (last_ns - told_ns) / 1e9,
        }
        if line.send("steps", fields):
            self._told = (steps, last_ns)
            self._told_s = now_s

    def _tell_profile(self, line: Line) -> None:
        recorded, self._recorded = self._recorded, None
        if recorded is None:
            return
        try:
            events = kineto.read(recorded.events, lambda: self._sleep(_READING_PAUSE_S))
            fields = split(
                Recording(
                    marks=recorded.marks,
                    collectives=events.collectives,
                    on_gpu=events.on_gpu,
                    kernels=events.kernels,
                    data_waits=events.data_waits,
                )
            )
        except Exception:
            # Another version's profiler, or a clock that was set: no profile then.
            return
        line.send("profile", fields)
