"""Being in somebody else's process: where we are called, the one thread, forks, and the end.

The thread is not there while the process forks: it is asked to stop before, and starts again with the next optimizer step. So
no lock of ours can be held in a child, no fork is one of a process with more threads than the program has itself (of which
Python 3.12 warns), and the child, in which nothing of ours runs, has nothing to take down but one descriptor.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import threading  # noqa: F401 - whichever thread imports it first is the main thread to Python: not ours
import time
from typing import TYPE_CHECKING, Any, Optional

from .batch_size import hook_loaders
from .profiler_guard import Guard
from .save_requests import Orders
from .step_counter import Tally, step_hook

if TYPE_CHECKING:
    from .agent_client import Teller

_SETTLE_S = 0.1
"""The thread lets the program's own imports go first, and imports the rest of this package itself."""
_STOP_BEFORE_FORK_S = 0.05
_STOP_AT_EXIT_S = 0.5


class Presence:
    """Invariant: at most one thread of ours, and none in a child."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.guard = Guard()
        self.orders = Orders()
        self.orders.ring, self.orders.tend = self._ring, self._tend
        self.loaded_ns = time.monotonic_ns()
        """When torch had loaded."""
        self.teller: Optional[Teller] = None
        self._pid = os.getpid()
        self._bell = _thread.allocate_lock()
        """Held, but for the moment in which somebody wakes the thread."""
        self._bell.acquire()
        self._running = _thread.allocate_lock()
        """Held by the thread for as long as it runs."""
        self._stopping = False
        self._forking = False

    def start(self) -> None:
        """Registers everything, and starts the thread."""
        self.guard.give_way = self._give_way
        self.guard.install()
        self.tally.began = self._ring
        _hook_optimizers(self.tally)
        hook_loaders(self.tally)
        os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_child)
        atexit.register(self._at_exit)
        self._start_thread()

    def _start_thread(self) -> None:
        """A bare thread: the program neither sees it in threading.enumerate() nor joins it."""
        self._stopping = False
        if self._running.acquire(False):
            try:
                _thread.start_new_thread(self._run, ())
            except BaseException:
                self._running.release()
                raise

    def _run(self) -> None:
        try:
            # Signals are the program's: one that it awaits in its own thread must not be delivered here.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            if self._sleep(_SETTLE_S):
                return
            if self.teller is None:
                from .agent_client import Teller

                self.teller = Teller(self.tally, self.orders, self.loaded_ns, self._may_profile, self._sleep)
            self.teller.run()
        except BaseException:
            # Nobody is there to be told, and Python would print it.
            pass
        finally:
            self._running.release()

    def _may_profile(self) -> bool:
        return not self.guard.in_the_way

    def _sleep(self, seconds: float) -> bool:
        if not self._stopping:
            self._bell.acquire(True, seconds)
        return self._stopping

    def _ring(self) -> None:
        """The thread's sleep ends."""
        try:
            self._bell.release()
        except RuntimeError:
            pass  # rung already

    def _tend(self) -> None:
        """In a training thread that stands still, in which no optimizer step follows a fork."""
        try:
            if self.tally.errand == self._resume and not self._forking:
                self._start_thread()
        except Exception:
            pass

    def _stop_thread(self, within_s: float) -> bool:
        """Whether it has stopped: it always does within milliseconds, but for an import that a fork is in the midst of
        and for a crowd at the agent's door."""
        self._stopping = True
        self._ring()
        if self._running.acquire(True, within_s):
            self._running.release()
            return True
        return False

    def _before_fork(self) -> None:
        try:
            if not self.tally.closed:
                self._forking = True
                self._stop_thread(_STOP_BEFORE_FORK_S)
                if self.teller is not None:
                    self.teller.cut_window()
        except Exception:
            pass

    def _after_fork(self) -> None:
        self._forking = False
        if not self.tally.closed:
            self.tally.errand = self._resume

    def _resume(self) -> None:
        """In the training thread, after the first step since a fork."""
        try:
            window = None if self.teller is None else self.teller.window  # of this thread, where another one has forked
            self.tally.errand = None if window is None else window.at_step
            self._start_thread()
            if window is not None:
                window.at_step()
        except Exception:
            pass

    def _in_child(self) -> None:
        try:
            self.tally.closed = True
            self.tally.errand = None
            self.guard.give_way = None
            if self.teller is not None:
                self.teller.hang_up()
        except Exception:
            pass

    def _give_way(self) -> None:
        try:
            if self.teller is not None:
                self.teller.skip_window()
        except Exception:
            pass

    def _at_exit(self) -> None:
        try:
            if self.tally.closed or os.getpid() != self._pid:
                return
            self.tally.closed = True
            self.tally.errand = None
            stopped = self._stop_thread(_STOP_AT_EXIT_S)
            self._give_way()
            if stopped and self.teller is not None:
                self.teller.last_words()
        except Exception:
            pass


_presence: Optional[Presence] = None


def begin() -> None:
    """Once a process."""
    global _presence  # noqa: PLW0603 - there is one process
    if _presence is None:
        _presence = Presence()
        _presence.start()


def orders() -> Orders:
    """What the agent asks of this process; of one that tells nobody of itself nothing is asked."""
    return Orders() if _presence is None or _presence.tally.closed else _presence.orders


def _hook_optimizers(tally: Tally) -> None:
    module: Any = sys.modules["torch.optim.optimizer"]
    hook = step_hook(tally)
    if hasattr(module, "register_optimizer_step_post_hook"):
        module.register_optimizer_step_post_hook(hook)
        return
    # torch < 2.1: a method that every optimizer's step calls at its end, which torch put there for its own profiler
    profilers_own = module.Optimizer._optimizer_step_code

    def step_code(optimizer: Any) -> Any:
        done = profilers_own(optimizer)
        hook(optimizer)
        return done

    module.Optimizer._optimizer_step_code = step_code
