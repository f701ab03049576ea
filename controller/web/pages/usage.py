"""Usage by user: GPU time, and GPUs held and waited for now."""

from __future__ import annotations

from dataclasses import dataclass

from headway_client import Status, Usage, UserUsage


@dataclass(frozen=True, slots=True)
class Row:
    """One user."""

    user: UserUsage
    share: float | None
    """Part of the GPU hours of all users, from 0 to 1; None: not all are shown, or there are none."""
    share_now: float | None
    """Part of the GPUs of managed partitions that the user holds now, from 0 to 1; None: there are none."""


def rows(usage: Usage, status: Status) -> list[Row]:
    """Return a row for each user that is shown, most GPU hours first."""
    hours = sum(user.gpu_hours for user in usage.users) if usage.all_users else 0.0
    return [
        Row(
            user,
            user.gpu_hours / hours if hours > 0 else None,
            user.gpus_running / status.gpus_total if status.gpus_total else None,
        )
        for user in usage.users
    ]
