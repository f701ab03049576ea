"""Log lines on standard error, for people or for programs."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def set_up_logging(level: str, form: Literal["console", "json"]) -> None:
    """One line per event: coloured on a terminal, plain in a file, JSON when asked for."""
    last: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if form == "json" else _leave,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        # Not cached, so that a reload can change the level.
        cache_logger_on_first_use=False,
    )


def _leave(_logger: object, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """The console renderer prints tracebacks itself."""
    return event
