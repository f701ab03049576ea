"""The largest values that a job may report to its agent, and an agent to the controller.

Both receivers check them: a job may send anything, and an agent may have another version, or be a forgery. Within these bounds
sums and products are finite, fit the fields of the messages and the columns of the store, and cost little.
"""

from __future__ import annotations

MAX_RANKS = 2**17
"""Ranks of one job. The largest published trainings have some tens of thousands."""
MAX_STEPS = 2**40
"""Optimizer steps of one run: twelve days at a million steps per second."""
MAX_STEPS_PER_S = 1e6
"""Optimizer steps per second of one process."""
MAX_SIZE = 2**53
"""Bytes, tensors and parameters: whole numbers up to this are exact as floating-point numbers."""
MAX_BATCH = 2**40
"""Examples of one rank in one step."""
MAX_SECONDS = 1e9
MIN_STEP_S = 1 / MAX_STEPS_PER_S
"""Shortest duration of a profiled step: its inverse is a rate."""
MAX_JOULES = 1e15
"""Energy of one run on one node: 256 GPUs of 10 kW for twelve years."""
MAX_RESTART = 1_000_000
MAX_NUMBER = 2**63 - 1
"""The largest integer of SQLite: job ids, and times in nanoseconds."""
MAX_ID = 2**32 - 1
"""The largest uid and job id of Slurm."""
MAX_TEXT = 255
MAX_GROUPS = 64
"""Process groups of one process."""
MAX_GPUS = 256
"""GPUs of one node."""
MAX_NICS = 1024
"""Network interfaces of one node."""
MAX_GPU_PROCESSES = 4096
"""Processes on the GPUs of one node, and MIG instances."""
MAX_CPUS = 2**16
"""Logical CPUs of one node, and NUMA nodes."""
MAX_TASKS = 64
"""Background tasks of one agent."""
MAX_BITS_PER_S = 10**15
"""Rate of one network interface."""
