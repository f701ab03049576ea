"""Room for the connections to the other ranks: two descriptors for each of them, in every process of the run.

Slurm gives a job the soft limit of the shell that submitted it, often 1024, which some hundred ranks reach. The hard limit is that
of slurmd, and usually far higher.

A higher soft limit harms a program only if it opens more than 1024 descriptors and gives one of the last to select(), which takes
none above 1023 (in C without a check, so that it writes into other memory). With the lower limit, the program could not have opened
it at all. So the limit is raised only if that is needed, and no further.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import sys

from ..errors import Refused

_log = logging.getLogger("headway_job")
_GROUPS = 2
_OF_A_GROUP = 4
"""Descriptors of a gloo group besides its connections (measured with torch 2.13)."""
_FOR_THE_PROGRAM = 512
"""Descriptors that the program can still open afterwards: half of the usual soft limit."""


def make_room(world_size: int) -> None:
    """Raise the soft limit if necessary, before the groups are created. Raises Refused if the hard limit is too low for them."""
    soft, hard = (sys.maxsize if one < 0 else one for one in resource.getrlimit(resource.RLIMIT_NOFILE))
    in_use = _in_use(soft)
    needed = _GROUPS * (world_size - 1 + _OF_A_GROUP)
    wanted = in_use + needed + _FOR_THE_PROGRAM
    if soft < wanted and _raised(min(wanted, hard)):
        soft = min(wanted, hard)
    if soft < in_use + needed:
        raise Refused(
            f"The ranks cannot connect to each other: this process has {in_use} descriptors (files and sockets) open and needs "
            f"{needed} more, most of them {_GROUPS} for each other rank, and its limit is {soft}. Let `ulimit -n` of the job be "
            f"{wanted} or more. The batch script can raise it up to `ulimit -Hn`; for more, set LimitNOFILE= in slurmd's unit on "
            "the compute nodes, and outside Slurm nofile in /etc/security/limits.conf."
        )


def _in_use(limit: int) -> int:
    """Return the number of open descriptors; 0 = not known."""
    try:
        return len(os.listdir("/dev/fd")) - 1  # without the one of the list itself
    except OSError as error:
        return limit if error.errno == errno.EMFILE else 0


def _raised(soft: int) -> bool:
    """Raise the soft limit to that; return True if that was possible."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    except (ValueError, OSError):
        return False  # a sandbox forbids it, or the system allows fewer than its hard limit says
    _log.info("The soft limit of open files (ulimit -n) is now %d, as each rank is connected to every other one.", soft)
    return True
