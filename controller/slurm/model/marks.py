"""Tokens in the admin comments of jobs: what Headway has done with a job, kept by Slurm itself."""

from __future__ import annotations

HOLD_MARK = "headway:hold"
"""Token in a job's admin comment: Headway holds this job, and Headway will release it."""

USER_HOLD_MARK = "headway:user-hold"
"""Token in a job's admin comment: the user holds this job; Headway leaves the job alone until the user releases it."""

PIN_MARK = "headway:pinned"
"""Token in a job's admin comment: Headway has placed and released this job, and it has not started yet. It takes the place of
HOLD_MARK, and goes when the job starts, is held again, or is given to Slurm."""

CHECK_MARK = "headway:check="
"""First characters of a token in a job's admin comment, followed by a Unix time: the begin time that job_submit.lua has given to
the job, so that Slurm checks the job at its submission and does not start it. The controller holds the job and ends that time."""
