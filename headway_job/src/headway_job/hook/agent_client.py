"""The agent's client, run by our own thread: it reads the step counter at each poll, and sends what is new.

Only this thread uses the socket while it runs, and it runs only while the program neither forks nor ends.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..profiling import kineto
from ..profiling.comm_overlap import Recording, split
from ..profiling.forked_child import children
from ..profiling.window import Window
from . import process_facts
from .agent_socket import AgentGone, AgentSocket
from .closing_line import report_lines
from .group_layout import GroupLayout
from .profile_windows import ProfileWindows
from .save_requests import SaveRequests
from .skipped_errors import SkippedErrors
from .step_counter import StepCounter

_FIRST_RETRY_S = 1.0
_MAX_RETRY_S = 60.0
_POLL_S = 1.0
"""Time between two polls. Steps frames are at least so far apart."""
_SAVE_POLL_S = 0.1
"""Time between two looks at the agent's frames, in a process that saves on request."""
_DUE_SHARE = 0.99
"""A poll that is due within the last hundredth of its period is due now."""
_MAX_INTERVAL_S = 3600.0
_FRAMES_PER_POLL = 16
_READING_PAUSE_S = 0.002


class AgentClient:
    """Sends frames to the agent. Invariant: a frame that cannot be sent now is dropped; it is neither kept nor waited for. An
    unexpected error leaves out what it concerns, and never ends the thread."""

    def __init__(
        self,
        counter: StepCounter,
        save_requests: SaveRequests,
        loaded_ns: int,
        why_no_window: Callable[[], str],
        sleep: Callable[[float], bool],
    ) -> None:
        """`sleep` waits so many seconds or until the thread is woken, and returns True if the thread has to stop."""
        self._counter = counter
        self._save_requests = save_requests
        self._loaded_ns = loaded_ns
        self._sleep = sleep
        self._path = os.environ.get("HEADWAY_JOB_SOCKET", "")
        self._socket: Optional[AgentSocket] = None
        self._next_connect_s = 0.0
        self._next_poll_s = 0.0
        self._retry_s = _FIRST_RETRY_S
        self._interval_s = _POLL_S
        self._ranks: Optional[Tuple[int, int]] = None
        self._groups: List[Dict[str, Any]] = []
        """Process groups of torch.distributed. Kept after it is shut down, as the job is the same one until its end.
        Bound: `_MAX_GROUPS` of process_facts."""
        self._layout = GroupLayout()
        self._hello: Dict[str, Any] = {}
        """The last hello that was sent. Bound: its fields."""
        self._model_key: Any = None
        self._state: Optional[Dict[str, Any]] = None
        """The fields of the last checkpoint frame."""
        self._sent_step = (0, 0)
        """`last_step` of the counter at the last steps frame."""
        self._sent_s = 0.0
        self._welcomed = False
        self.report_lines: Tuple[str, ...] = ()
        """What the controller knows about the job, for the end of its log. Bound: `report_lines`."""
        self._windows = ProfileWindows(counter, why_no_window)
        self._parts = SkippedErrors(AgentGone)

    @property
    def window(self) -> Optional[Window]:
        """The profile window that is open, or waits for the next step."""
        return self._windows.current

    def run(self) -> None:
        """Poll until `sleep` says that the thread has to stop."""
        while True:
            self._parts.run("turn", self._turn)
            if self._sleep(max(self._rest_s(), self._parts.pause_s("turn"))):
                return

    def _turn(self) -> None:
        """Connect if there is no connection, and poll. An unexpected error ends the connection: a new one begins with a hello."""
        now_s = time.monotonic()
        try:
            if self._socket is None and now_s >= self._next_connect_s and self._needs_connection():
                self._connect(now_s)
            if self._socket is not None:
                self._poll(now_s)
        except Exception:
            self.disconnect()
            raise

    def _rest_s(self) -> float:
        if self._socket is None and not self._needs_connection():
            return _MAX_RETRY_S
        if self._socket is None:
            return max(self._next_connect_s - time.monotonic(), 0.01)
        return _POLL_S if self._save_requests.run is None else min(_POLL_S, _SAVE_POLL_S)

    def _needs_connection(self) -> bool:
        """Return True once a step was made, or saves can be requested. Until then the thread sleeps, and is woken when there is.

        So a program that only imports torch, or that only loads data for another one, takes no connection.
        """
        return self._counter.last_step[0] > 0 or self._save_requests.run is not None

    def send_last(self) -> None:
        """Send the last frames and disconnect; at exit, in any thread, once `run` has returned."""
        if self._socket is None:
            return
        try:
            if self._hello:
                self._parts.run_now(self._send_model, self._socket)
                self._parts.run_now(self._send_steps, self._socket, math.inf)
                self._parts.run_now(self._send_saves, self._socket)
                self._socket.send("bye", {})
            # If a socket is closed with unread packets, its peer gets an error instead of our last frames.
            for _ in range(_FRAMES_PER_POLL):
                if self._socket.receive() is None:
                    break
        except AgentGone:
            pass
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection, in this process only."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
        self._save_requests.set_connected(connected=False)

    def forget_in_child(self) -> None:
        """Leave what belongs to the parent; called in a forked child."""
        children.end_without_destructors()
        self.disconnect()

    def skip_window(self, *, wait: bool) -> None:
        """Drop the window, in any thread, as the program's own profiler has precedence; see ProfileWindows.skip."""
        self._windows.skip(wait=wait)

    def end_window(self) -> None:
        """End the window with what it has; in the training thread, before a fork, during which no profiler may run."""
        self._windows.end()

    def _connect(self, now_s: float) -> None:
        try:
            self._socket = AgentSocket(self._path)
        except (OSError, AgentGone):
            self._retry_later(now_s)
            return
        self._hello, self._model_key, self._state = {}, None, None
        self._next_poll_s = now_s

    def _retry_later(self, now_s: float) -> None:
        self._next_connect_s = now_s + self._retry_s
        state = self._save_requests.state()
        longest_s = _FIRST_RETRY_S if state is not None and state["saving"] else _MAX_RETRY_S
        self._retry_s = min(self._retry_s * 2, longest_s)

    def _poll(self, now_s: float) -> None:
        socket = self._socket
        assert socket is not None
        due = now_s >= self._next_poll_s or (self._counter.last_step[0] > 0 and not self._sent_step[0])
        try:
            if due:
                self._parts.run("hello", self._send_hello, socket)
            if not self._hello:
                return
            for _ in range(_FRAMES_PER_POLL):
                frame = socket.receive()
                if frame is None:
                    break
                self._parts.run_now(self._handle, frame)
            self._parts.run("saves", self._send_saves, socket)
            if not due:
                return
            self._next_poll_s = now_s + _POLL_S * _DUE_SHARE
            self._parts.run("model", self._send_model, socket)
            self._parts.run("steps", self._send_steps, socket, now_s)
            self._parts.run("profile", self._send_profile, socket)
            self._parts.run("window", lambda: self._windows.open(communicates=self._ranks is not None))
        except AgentGone:
            self.disconnect()
            self._retry_later(now_s)

    def _handle(self, frame: Dict[str, Any]) -> None:
        """Handle a frame of the agent. Unknown types, keys and values are ignored."""
        if frame.get("type") == "welcome":
            self._save_requests.set_connected(connected=True)
            self._retry_s = _FIRST_RETRY_S
            interval_s = frame.get("interval_s")
            if isinstance(interval_s, (int, float)) and interval_s > 0:  # excludes NaN, too
                self._interval_s = min(max(float(interval_s), _POLL_S), _MAX_INTERVAL_S)
            if not self._welcomed:
                self._windows.request(frame.get("profile_steps"))
            self._welcomed = True
        elif frame.get("type") == "profile":
            self._windows.request(frame.get("steps"))
        elif frame.get("type") == "save":
            self._save_requests.receive_save(frame.get("id"), frame.get("still_s"), frame.get("why"))
        elif frame.get("type") == "report":
            self.report_lines = report_lines(frame.get("lines"))
        elif frame.get("type") == "go_on":
            self._save_requests.receive_go_on(frame.get("id"))

    def _send_hello(self, socket: AgentSocket) -> None:
        self._ranks = process_facts.ranks() or self._ranks
        hello = process_facts.hello(self._counter.device, self._ranks, self._loaded_ns)
        if hello != self._hello and socket.send("hello", hello):
            self._hello = hello

    def _send_saves(self, socket: AgentSocket) -> None:
        """Send whether and how the run can be saved; then the answer to the agent's request."""
        state = self._save_requests.state()
        if state != self._state and state is not None and socket.send("checkpoint", state):
            self._state = state
        request, answer = self._save_requests.current, self._save_requests.answer()
        if request is not None and answer is not None and socket.send("saved", answer):
            request.set_answered(answered=True)

    def _send_model(self, socket: AgentSocket) -> None:
        """Send the model's size from the second step on: by then each optimizer of an ordinary loop has stepped once."""
        if self._counter.last_step[0] < 2:
            return
        parameters, optimizers = self._counter.parameters, self._counter.optimizers
        self._groups = process_facts.groups() or self._groups
        self._layout.update(self._ranks)
        batch_size = self._counter.batch_size
        key = (id(parameters), len(parameters), optimizers, len(self._groups), batch_size)
        if key == self._model_key:
            return
        if socket.send("model", process_facts.model(list(parameters), optimizers, self._groups, batch_size)):
            self._model_key = key

    def _send_steps(self, socket: AgentSocket, now_s: float) -> None:
        steps, last_ns = self._counter.last_step
        sent_steps, sent_ns = self._sent_step
        if steps <= sent_steps or now_s - self._sent_s < self._interval_s:
            return
        if not sent_steps:
            sent_steps, sent_ns = 1, self._counter.first_ns
        fields = {
            "steps": steps,
            "first_ns": self._counter.first_ns,
            "last_ns": last_ns,
            "window_steps": steps - sent_steps,
            "window_s": (last_ns - sent_ns) / 1e9,
        }
        if socket.send("steps", fields):
            self._sent_step = (steps, last_ns)
            self._sent_s = now_s

    def _send_profile(self, socket: AgentSocket) -> None:
        """Send the profile that was recorded, or why there is none."""
        recorded = self._windows.take_recorded()
        if recorded is None:
            if self._windows.why_not and socket.send("no_profile", {"reason": self._windows.why_not}):
                self._windows.note_reason_sent()
            return
        try:
            group_size = process_facts.group_size(self._groups, self._ranks)
            noted = kineto.Noted(recorded.sizes, recorded.groups, group_size, self._layout.value)
            events = kineto.read(recorded.events, lambda: self._sleep(_READING_PAUSE_S), noted)
            fields = split(
                Recording(
                    step_ends=recorded.step_ends,
                    collectives=events.collectives,
                    on_gpu=events.on_gpu,
                    kernels=events.kernels,
                    data_waits=events.data_waits,
                    divides=self._layout.value.divides,
                    has_events=not isinstance(recorded.events, kineto.NoProfiler),
                )
            )
        except Exception:
            # The profiler of another torch version, or a clock that was set: there is no profile then.
            self._windows.note_unreadable()
            return
        socket.send("profile", fields)
