"""The hook of one process: what torch calls, the one thread, forks, and the end of the program.

The thread does not run while the process forks: it is stopped before, and starts again with the next optimizer step. So no lock of
ours can be held in a child, and a fork never has more threads than the program itself started (Python 3.12 warns of those).

A child of a process that has not trained is measured as its parent would be: launchers fork their ranks. Until its first step
nothing of ours runs in it. In a child of a process that trains, nothing of ours ever runs: it is a worker of a data loader, or it
evaluates. There, one descriptor is closed, and its exit after a profile is prepared (see forked_child).
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import threading  # noqa: F401 - Python takes the thread that imports it first for the main thread: it must not be ours
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Optional

from .batch_size import hook_loaders
from .compiled_step import traceable
from .profiler_guard import ProfilerGuard
from .save_requests import SaveRequests
from .step_counter import StepCounter, step_hook

if TYPE_CHECKING:
    from .agent_client import AgentClient

_START_DELAY_S = 0.1
"""The thread waits so long before it imports the rest of this package, so that the program's own imports come first."""
_STOP_BEFORE_FORK_S = 0.05
_STOP_AT_EXIT_S = 0.5
_FIRST_RETRY_S = 1.0
_MAX_RETRY_S = 60.0
"""Pauses after an unexpected error, before the thread tries again."""


class ProcessHook:
    """The hook of this process. Invariant: there is at most one thread of ours, and none in a forked child before it trains."""

    def __init__(self) -> None:
        self.counter = StepCounter()
        self.guard = ProfilerGuard(self._skip_window)
        self.save_requests = SaveRequests(self._wake, self._keep_running)
        self.loaded_ns = time.monotonic_ns()
        """When torch was loaded (CLOCK_MONOTONIC, ns)."""
        self.client: Optional[AgentClient] = None
        self._pid = os.getpid()
        self._renew_locks()
        self._stopping = False
        self._forking = False
        self._stopped = False
        """The thread had stopped before the last fork."""
        self._rank = -1
        """Rank at the first step, where the closing line is wanted; -1 = not known."""
        self._is_child = False

    def _renew_locks(self) -> None:
        self._wake_lock = _thread.allocate_lock()
        """Held, except for the moment in which the thread is woken."""
        self._wake_lock.acquire()
        self._running = _thread.allocate_lock()
        """Held by the thread as long as it runs."""

    def start(self) -> None:
        """Install all hooks, and start the thread."""
        _prepare_end_of_threads()
        self.guard.install()
        self.counter.set_first_step_callback(self._at_first_step)
        _hook_optimizers(self.counter)
        hook_loaders(self.counter)
        os.register_at_fork(
            before=self._before_fork,
            after_in_parent=self._after_fork_in_parent,
            after_in_child=self._after_fork_in_child,
        )
        atexit.register(self._at_exit)
        self._start_thread()

    def _start_thread(self) -> None:
        """Start a bare thread, which the program neither sees in threading.enumerate() nor joins."""
        self._stopping = False
        if self._running.acquire(False):
            try:
                _thread.start_new_thread(self._run, ())
            except BaseException:
                self._running.release()
                raise

    def _run(self) -> None:
        try:
            # Signals belong to the program: one that it awaits in its own thread must not be delivered to this one.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            if self._sleep(_START_DELAY_S):
                return
            while not self._needs_client():  # launchers import nothing more, so a fork never interrupts that
                if self._sleep(_MAX_RETRY_S):
                    return
            pause_s = _FIRST_RETRY_S
            while not self._run_client() and not self._sleep(pause_s):
                pause_s = min(2 * pause_s, _MAX_RETRY_S)
        except BaseException:
            # Python would print the traceback into the output of the user's program.
            pass
        finally:
            self._running.release()

    def _needs_client(self) -> bool:
        return self.counter.last_step[0] > 0 or self.save_requests.run is not None

    def _run_client(self) -> bool:
        """Run the client until the thread has to stop. Returns False after an error, such as storage that is away."""
        try:
            if self.client is None:
                from .agent_client import AgentClient

                self.client = AgentClient(
                    self.counter, self.save_requests, self.loaded_ns, self.guard.why_no_window, self._sleep
                )
            self.client.run()
        except Exception:
            return False
        return True

    def _sleep(self, seconds: float) -> bool:
        if not self._stopping:
            self._wake_lock.acquire(True, seconds)
        return self._stopping

    def _wake(self) -> None:
        """End the thread's sleep."""
        try:
            self._wake_lock.release()
        except RuntimeError:
            pass  # it was woken already

    def _at_first_step(self) -> None:
        self._wake()
        if os.environ.get("HEADWAY_REPORT"):
            # At its end the program has destroyed its process groups, and all ranks may have the variables of one task.
            from .process_facts import own_rank

            self._rank = own_rank()

    def _keep_running(self) -> None:
        """Start the thread again. Called by a training thread during a pause, in which no optimizer step follows a fork."""
        try:
            if self.counter.step_callback == self._resume and not self._forking:
                self._start_thread()
        except Exception:
            pass

    def _stop_thread(self, within_s: float) -> bool:
        """Stop the thread, and return True if it has stopped in time.

        It stops within milliseconds, unless it is in the middle of an import that a fork interrupts, or waits for an agent to which
        many processes connect.
        """
        self._stopping = True
        self._wake()
        if self._running.acquire(True, within_s):
            self._running.release()
            return True
        return False

    def _before_fork(self) -> None:
        try:
            if not self.counter.closed:
                self._forking = True
                self._stopped = self._stop_thread(_STOP_BEFORE_FORK_S)
                if self.client is not None:
                    self.client.end_window()
        except Exception:
            pass

    def _after_fork_in_parent(self) -> None:
        self._forking = False
        if not self.counter.closed:
            self.counter.set_step_callback(self._resume)

    def _resume(self) -> None:
        """Start the thread again; called in the training thread, after the first step since a fork."""
        try:
            window = None if self.client is None else self.client.window  # still open if another thread has forked
            self.counter.set_step_callback(None if window is None else window.at_step)
            self._start_thread()
            if self._is_child:
                self._end_with_multiprocessing()
            if window is not None:
                window.at_step()
        except Exception:
            pass

    def _after_fork_in_child(self) -> None:
        try:
            if self._may_measure_child():
                self._begin_in_child()
                return
            self.counter.close()
            self.guard.forget_callback()
            if self.client is not None:
                self.client.forget_in_child()
        except Exception:
            pass

    def _may_measure_child(self) -> bool:
        """Return True if nothing of the parent's measurement is in this forked child: it has not trained, and has no run."""
        return self._stopped and not self.counter.closed and self.client is None and not self._needs_client()

    def _begin_in_child(self) -> None:
        """Start the thread with the first step."""
        self._renew_locks()
        self._forking = False
        self._is_child = True
        self._pid = os.getpid()
        self.loaded_ns = time.monotonic_ns()
        self.counter.set_step_callback(self._resume)

    def _end_with_multiprocessing(self) -> None:
        """Have the last frames sent at the end of a child of multiprocessing, which ends without atexit."""
        self._is_child = False
        util: Any = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self._at_exit, exitpriority=0)

    def _skip_window(self, *, wait: bool = True) -> None:
        try:
            if self.client is not None:
                self.client.skip_window(wait=wait)
        except Exception:
            pass

    def _at_exit(self) -> None:
        try:
            if self.counter.closed or os.getpid() != self._pid:
                return
            self.counter.close()
            stopped = self._stop_thread(_STOP_AT_EXIT_S)
            self._skip_window(wait=False)
            if stopped and self.client is not None:
                self.client.send_last()
            self._write_closing_line()
        except Exception:
            pass

    def _write_closing_line(self) -> None:
        if os.environ.get("HEADWAY_REPORT"):
            from .closing_line import is_wanted, write_closing_line

            if is_wanted(self._rank):
                write_closing_line(self.counter, () if self.client is None else self.client.report_lines)


def _prepare_end_of_threads() -> None:
    """Have glibc load now what it needs to end a thread.

    Our thread may still run when Python ends, and is ended then. If no descriptor is free at that time, glibc cannot load that
    library any more, and ends the whole process (SIGABRT). `backtrace` needs the same library.
    """
    with suppress(Exception):
        import ctypes  # torch has imported it

        ctypes.CDLL(None).backtrace((ctypes.c_void_p * 1)(), 1)


_hook: Optional[ProcessHook] = None


def begin() -> None:
    """Install the hook of this process; a second call does nothing."""
    global _hook  # noqa: PLW0603 - there is one process
    if _hook is None:
        _hook = ProcessHook()
        _hook.start()


def save_requests() -> SaveRequests:
    """Return the agent's requests to this process. A process that is not measured gets none: the result then stays empty."""
    return SaveRequests() if _hook is None or _hook.counter.closed else _hook.save_requests


def _hook_optimizers(counter: StepCounter) -> None:
    module: Any = sys.modules["torch.optim.optimizer"]
    hook = step_hook(counter)
    if hasattr(module, "register_optimizer_step_post_hook"):
        module.register_optimizer_step_post_hook(traceable(hook))
        return
    # torch < 2.1: replace a method that each optimizer's step calls at its end, which torch has for its own profiler
    original = module.Optimizer._optimizer_step_code

    def step_code(optimizer: Any) -> Any:
        done = original(optimizer)
        hook(optimizer)
        return done

    module.Optimizer._optimizer_step_code = step_code
