"""Outcome of a piece of work in a thread, handed to the caller that waits for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def settle(future: Future[Any], work: Callable[[], Any]) -> None:
    """Do the work, unless it was cancelled, and give its future what it returns or raises. Raises nothing itself."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - handed to the caller
        future.set_exception(error)
    except BaseException as error:  # noqa: BLE001 - SystemExit in a thread must not end the event loop
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
    finally:
        del future, work  # the error's traceback has this frame, and would keep what they hold
