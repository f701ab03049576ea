"""Lines of Headway in the job's own log, its standard error: that it is stopped, goes on, or runs again, at which step and why."""

from __future__ import annotations

import os
import sys

_MAX_CHARS = 400


def write_line(text: str) -> None:
    """Write one line. Where standard error is closed or full, it is left out."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in text)[:_MAX_CHARS]
    try:
        sys.stderr.write(f"headway: {shown}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


def stop_line(step: int, why: str) -> str:
    """Return the line for a job that is saved and about to be stopped. `why` may be empty."""
    because = f": {why}" if why else ""
    return f"step {step} is saved; the scheduler now stops this job, and starts it again later{because}"


def go_on_line(step: int, why: str) -> str:
    """Return the line for a job that was not stopped after all, or handles the stop in its own way."""
    return f"the job trains on after step {step}: {why}"


def again_line(step: int, starts: int) -> str:
    """Return the line for a job that has been started `starts` times and was restored at that step."""
    job_id = os.environ.get("SLURM_JOB_ID", "")
    more = f" (`headway why {job_id}` says why it was stopped)" if job_id.isdigit() else ""
    return f"this is start {starts} of the job; it trains on after step {step}{more}"
