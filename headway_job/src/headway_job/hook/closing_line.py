"""The end of a job's log, where its user wants it: the steps of this run, how fast they were, and what the controller knows.

The controller's lines come with the agent's frames while the job trains. The end of the program waits for none, and asks for none.
"""

from __future__ import annotations

import os
from typing import Any, Optional, Sequence, Tuple

from ..job_log import write_line, write_lines
from .step_counter import StepCounter

VARIABLE = "HEADWAY_REPORT"
"""Environment variable by which a user wants the line: 1."""
_NS = 1e-9
_MAX_LINES = 8


def is_wanted(rank: int) -> bool:
    """Return True if the user wants the line, and this process is the first rank, or the only one (-1)."""
    return os.environ.get(VARIABLE, "").strip().lower() in ("1", "yes", "on", "true") and rank <= 0


def report_lines(found: Any) -> Tuple[str, ...]:
    """Return the lines of a frame of the agent; what is no text is left out."""
    return tuple(line for line in found[:_MAX_LINES] if isinstance(line, str)) if isinstance(found, list) else ()


def write_closing_line(counter: StepCounter, known: Sequence[str] = ()) -> None:
    """Write the line, and those that the controller has sent; none for a program that has made no step."""
    text = closing_line(counter, "the rest" if known else "its waits, stops and contention")
    if text is None:
        return
    if known:  # in one piece: each line might be waited for, if the log hangs
        first, _, last = text.partition("; ")
        write_lines([first, *known, last] if last else [first, *known])
    else:
        write_line(text)


def closing_line(counter: StepCounter, rest: str = "its waits, stops and contention") -> Optional[str]:
    """Return the line; None if no step was made. `rest`: what `headway report` has."""
    steps, last_ns = counter.last_step
    if steps <= 0:
        return None
    job_id, restarts = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_RESTART_COUNT", "0")
    seconds = (last_ns - counter.first_ns) * _NS
    timed = f" in {duration(seconds)}, {pace(seconds / (steps - 1))}" if steps > 1 and seconds > 0 else ""
    start = f" (start {int(restarts) + 1} of the job)" if restarts.isdigit() and int(restarts) > 0 else ""
    more = f"; `headway report {job_id}` has {rest}" if job_id.isdigit() else ""
    return f"this run made {steps} step{'s' * (steps > 1)}{timed}{start}{more}"


def pace(step_s: float) -> str:
    """Return a pace in words, from the seconds of a step: 1,250 steps/s, 5.97 steps/s, 42 s for a step."""
    if step_s > 10.0:
        return f"{duration(step_s)} for a step"
    return f"{1.0 / step_s:,.0f} steps/s" if step_s < 1e-3 else f"{1.0 / step_s:.3g} steps/s"


def duration(seconds: float) -> str:
    """Return a duration in words: 42 s, 12 min 5 s, 3 h 2 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.3g} s"
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"
