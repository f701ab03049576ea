"""Largest values that a job may claim to its agent, and an agent to the controller.

Both sides check them: a job may say anything, and an agent may be of another version, or not ours at all. Within these bounds sums
and products stay finite, fit the fields of the messages and the columns of the store, and cost little.
"""

from __future__ import annotations

MAX_RANKS = 2**17
"""Ranks of one job. The largest trainings that were published have some tens of thousands."""
MAX_STEPS = 2**40
"""Optimizer steps of one run: at a million steps each second they take twelve days."""
MAX_STEPS_PER_S = 1e6
"""A process does not make more optimizer steps in a second."""
MAX_SIZE = 2**53
"""Bytes, tensors and parameters: whole numbers up to this are exact as floating-point numbers, too."""
MAX_BATCH = 2**40
"""Examples of one rank and step."""
MAX_SECONDS = 1e9
MIN_STEP_S = 1 / MAX_STEPS_PER_S
"""Duration of a profiled step, at the least: its inverse is a rate."""
MAX_RESTART = 1_000_000
MAX_NUMBER = 2**63 - 1
"""The largest number that SQLite keeps whole: job ids, and times in nanoseconds."""
MAX_ID = 2**32 - 1
"""The largest uid and job id that Slurm has."""
MAX_TEXT = 255
MAX_GROUPS = 64
"""Process groups of one process."""
MAX_GPUS = 256
"""GPUs of one node."""
MAX_NICS = 1024
"""Network interfaces of one node."""
MAX_GPU_PROCESSES = 4096
"""Processes on the GPUs of one node."""
MAX_BITS_PER_S = 10**15
"""Rate of one network interface."""
