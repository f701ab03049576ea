"""Meaning of an error of pyslurm, by Slurm's number of it (slurm/slurm_errno.h); by its text only where it has none.

pyslurm.RPCError has the number in `errno`; -1 (SLURM_ERROR) stands for an error of pyslurm itself, with a text of its own.
"""

from __future__ import annotations

import errno

from controller.slurm.scontrol.scontrol import means_away

_INVALID_JOB_ID = 2017
_AWAY = frozenset(
    [
        *range(1001, 1005),  # SLURM_COMMUNICATIONS_*: connection, send, receive, shutdown
        1007,  # SLURM_PROTOCOL_AUTHENTICATION_ERROR
        *range(1800, 1806),  # SLURMCTLD_COMMUNICATIONS_*
        2027,  # ESLURM_IN_STANDBY_MODE
        2131,  # ESLURM_IN_STANDBY_USE_BACKUP
        *range(5000, 5006),  # SLURM_PROTOCOL_SOCKET_*: incomplete packets, timeout
        *range(6000, 6004),  # ESLURM_AUTH_*: credential invalid; munge cannot be opened or reached, or does not sign
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EPIPE,
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.EHOSTDOWN,
        errno.ENETUNREACH,
    ]
)


def number_of(error: BaseException) -> int | None:
    """Return Slurm's number of an error; None if it has none. The number of an OSError is not Slurm's."""
    if all(kind.__name__ != "RPCError" for kind in type(error).__mro__):  # pyslurm cannot be imported here
        return None
    found = getattr(error, "errno", None)
    return found if isinstance(found, int) and found > 0 else None


def is_unknown_job(error: BaseException) -> bool:
    """Return whether slurmctld says that there is no such job."""
    number = number_of(error)
    return "invalid job id" in str(error).lower() if number is None else number == _INVALID_JOB_ID


def is_away(number: int | None, message: str) -> bool:
    """Return whether slurmctld was not reached."""
    return means_away(message) if number is None else number in _AWAY
