"""Failures of listeners: a bug in one service is shown, and hides nothing from the others."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from controller.base.events import EventLog
from controller.base.text import clip

log = structlog.get_logger(__name__)

_MOST_KNOWN = 200


class ListenerFailures:
    """Failures of the functions that services have registered. Invariant: each is counted, and the log and the events have each
    problem of a listener once, also when it comes with every cycle.
    """

    def __init__(self, events: EventLog, count: Callable[[str], None] = lambda _: None) -> None:
        """`count` is called with the problem at each failure."""
        self._events = events
        self._count = count
        self._known: set[tuple[str, str]] = set()
        """Listeners and their problems. Bound: `_MOST_KNOWN`."""

    def note(self, listener: Callable[..., object], error: Exception) -> None:
        """Note that this listener has raised the error."""
        name = str(getattr(listener, "__qualname__", type(listener).__name__))
        text = clip(f"{type(error).__name__}: {error}")
        problem = f"a part of the controller was not informed ({name}): {text}"
        self._count(problem)
        if (name, text) in self._known:
            return
        if len(self._known) >= _MOST_KNOWN:  # texts that differ each time; they are shown again
            self._known.clear()
        self._known.add((name, text))
        log.error("listener_failed", listener=name, exc_info=error)
        self._events.add("error", "", problem)
