"""Steps of a running job as text."""

from __future__ import annotations

from controller.base.text import count, duration


def steps_sentence(done: int, in_all: int | None, steps_per_s: float | None) -> str:
    """Return a sentence on the steps that a job has made; where their number and speed are known, with the time for the others."""
    if in_all is None:
        return f"It has made {count(done, 'step')}."
    rest = ""
    if steps_per_s and in_all > done:
        rest = f"; at this speed the others take {duration((in_all - done) / steps_per_s)}"
    return f"It has made {done} of its {count(in_all, 'step')} ({_share(done, in_all)}){rest}."


def steps_phrase(done: int, in_all: int | None) -> str:
    """Return the same for a column: "step 43200 of 100000 (43%)"."""
    return f"step {done}" if in_all is None else f"step {done} of {in_all} ({_share(done, in_all)})"


def steps_short(done: int, in_all: int | None) -> str:
    """Return the same for a narrow column: "43%", or "step 43200" where the number of all steps is not known."""
    return f"step {done}" if in_all is None else _share(done, in_all)


def _share(done: int, in_all: int) -> str:
    """Return the share, rounded down; at most 100 %, since a job may train longer than its user has said."""
    return f"{100 * min(done, in_all) // in_all}%"
