"""Numbers that name states, orders and rules in the inner loops.

Compiled modules import them into C variables (their `.pxd` files declare the same names), so that a comparison is one.
"""

NEVER = (1 << 63) - 1
"""A time that never comes, and the key of what comes last."""
NOWHERE = -1
"""Stands for an index or a time that does not exist."""

WAITING = 1
RUNNING = 2

FINISH = 1
ARRIVAL = 2
INTERRUPT = 4
ROUND = 8

BY_ARRIVAL = 0
BY_GPUS = 1
BY_DURATION = 2
BY_REMAINING = 3
BY_ATTAINED = 4
BY_REMAINING_GPUS = 5
BY_QUEUES = 6
BY_LEVELS = 8

NO_JOBS = 0
ALL_JOBS = 1
ON_SEVERAL_NODES = 2
"""Values of `Loop.track`: the jobs whose starts, stops and finishes are reported."""

CONSOLIDATED = 0
"""Jobs wait until they can be placed by consolidated best fit."""
ANYWHERE = 1
"""Jobs that cannot be consolidated take the nodes with the most free GPUs."""
