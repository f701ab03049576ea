"""Birthmarks: words in the admin comments of jobs that tell a job from another one which gets its id later. Pure.

After a crash slurmctld issues the ids of lost jobs again, and a requeue gives a job a new submit time. Slurm keeps the admin
comment, which users cannot set.
"""

from __future__ import annotations

import re

BIRTHMARK = "headway:id="
"""First characters of a token in a job's admin comment, followed by a word. A job that gets the same id later has another word.
job_submit.lua writes it at the submission, and it stays. All tasks of an array have the same. A job that was submitted without
another mark of ours, or under an earlier job_submit.lua, has none."""
_WORD = re.compile(r"[0-9a-z]{1,16}")


def are_of_two_jobs(birthmark: str, other: str) -> bool:
    """Return whether these birthmarks show for certain that they are of different jobs; False if one of them is not known."""
    return bool(birthmark and other) and birthmark != other


def birthmark_of(admin_comment: str) -> str:
    """Return the word of the birthmark in an admin comment; empty without one. The last one counts, as in job_submit.lua."""
    if BIRTHMARK not in admin_comment:
        return ""
    words = [token for token in admin_comment.split() if token.startswith(BIRTHMARK)]
    found = _WORD.fullmatch(words[-1].removeprefix(BIRTHMARK)) if words else None
    return found[0] if found else ""
